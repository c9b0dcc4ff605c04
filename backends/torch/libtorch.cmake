# Gives the target `torch`: Debian's package through its own CMake config, or a libtorch 2.x under DARLCORE_TORCH_DIR.
# The config of 2.x wheels needs a CUDA toolkit to configure, so there the two libraries are imported by hand.
if(DARLCORE_TORCH_DIR)
  find_library(DARLCORE_TORCH_CPU torch_cpu PATHS ${DARLCORE_TORCH_DIR}/lib NO_DEFAULT_PATH REQUIRED)
  find_library(DARLCORE_TORCH_C10 c10 PATHS ${DARLCORE_TORCH_DIR}/lib NO_DEFAULT_PATH REQUIRED)
  find_path(DARLCORE_TORCH_INCLUDE ATen/ATen.h PATHS ${DARLCORE_TORCH_DIR}/include NO_DEFAULT_PATH REQUIRED)
  add_library(torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(torch INTERFACE ${DARLCORE_TORCH_INCLUDE} ${DARLCORE_TORCH_INCLUDE}/torch/csrc/api/include)
  # The wheel's libraries name CUDA libraries that are loaded from their own folders at run time.
  target_link_libraries(torch INTERFACE ${DARLCORE_TORCH_CPU} ${DARLCORE_TORCH_C10})
  target_link_options(torch INTERFACE -Wl,--allow-shlib-undefined -Wl,-rpath,${DARLCORE_TORCH_DIR}/lib)
else()
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)  # tests and benches link it too
  find_package(Torch REQUIRED)
endif()

# Gloo collectives need its headers; a libtorch built without them has the in-process communicator only.
find_path(DARLCORE_GLOO_INCLUDE gloo/algorithm.h)
