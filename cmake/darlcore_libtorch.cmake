# Gives the target `torch` and DARLCORE_TORCH_VERSION: Debian's package through its own CMake config, or a libtorch 2.x under
# DARLCORE_TORCH_DIR. The config of 2.x wheels needs a CUDA toolkit to configure, so there the two libraries are imported by hand.
# Used by the build and, installed, by programs that take darlcore::torch from an installed tree.
if(NOT DARLCORE_TORCH_DIR)
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # tests and benches link it too
  find_package(Torch REQUIRED)
  set(DARLCORE_TORCH_VERSION ${Torch_VERSION})
  return()
endif()

foreach(part lib/libtorch_cpu.so lib/libc10.so include/ATen/ATen.h include/torch/csrc/api/include/torch/version.h)
  if(NOT EXISTS ${DARLCORE_TORCH_DIR}/${part})
    message(FATAL_ERROR "DARLCORE_TORCH_DIR is `${DARLCORE_TORCH_DIR}`, but ${part} is not there; give the folder of a libtorch 2.x "
      "that holds lib/ and include/ (scripts/libtorch2 fetches one)")
  endif()
endforeach()
add_library(torch INTERFACE IMPORTED GLOBAL)
target_include_directories(torch INTERFACE ${DARLCORE_TORCH_DIR}/include ${DARLCORE_TORCH_DIR}/include/torch/csrc/api/include)
# The wheel's libraries name CUDA libraries that are loaded from their own folders at run time.
target_link_libraries(torch INTERFACE ${DARLCORE_TORCH_DIR}/lib/libtorch_cpu.so ${DARLCORE_TORCH_DIR}/lib/libc10.so)
target_link_options(torch INTERFACE -Wl,--allow-shlib-undefined -Wl,-rpath,${DARLCORE_TORCH_DIR}/lib)
set(DARLCORE_TORCH_VERSION "")
foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)  # newer ones keep the numbers in the first
  if(DARLCORE_TORCH_VERSION STREQUAL "" AND EXISTS ${DARLCORE_TORCH_DIR}/include/${header})
    file(STRINGS ${DARLCORE_TORCH_DIR}/include/${header} numbers REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE "[^0-9;]" "" numbers "${numbers}")
    string(REPLACE ";" "." DARLCORE_TORCH_VERSION "${numbers}")
  endif()
endforeach()
