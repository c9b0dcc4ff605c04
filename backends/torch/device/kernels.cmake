# Libraries of device kernels, one per vendor whose compiler is here, from one source. They are loaded at run time, so that
# nothing else depends on a vendor's runtime. CMake's own CUDA and HIP languages are not used: 3.25 knows neither CUDA 13
# nor Debian's hipcc.
set(device_source ${CMAKE_CURRENT_SOURCE_DIR}/device/device_kernels.cu)
set(device_headers ${CMAKE_CURRENT_SOURCE_DIR}/device/device_abi.h ${CMAKE_CURRENT_SOURCE_DIR}/device/device_vendor.hpp
  ${CMAKE_CURRENT_SOURCE_DIR}/device/device_values.hpp)

function(device_library vendor library)
  add_custom_command(OUTPUT ${library} COMMAND ${ARGN} -I${PROJECT_SOURCE_DIR} ${device_source} -o ${library}
    DEPENDS ${device_source} ${device_headers} COMMENT "Device kernels for ${vendor}" VERBATIM)
  add_custom_target(darlcore_device_${vendor} ALL DEPENDS ${library})
  install(FILES ${library} DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

find_program(DARLCORE_NVCC nvcc PATHS /usr/local/cuda/bin)
find_program(DARLCORE_HIPCC hipcc)
if(DARLCORE_NVCC)
  set(cuda_flags -std=c++20 -O3 -fmad=false -Werror all-warnings -gencode arch=compute_80,code=[sm_80,compute_80]
    -gencode arch=compute_90,code=sm_90 -Xcompiler -fPIC,-fvisibility=hidden -shared -cudart static)
  device_library(cuda ${CMAKE_CURRENT_BINARY_DIR}/libdarl_device_cuda.so ${DARLCORE_NVCC} ${cuda_flags})
endif()
if(DARLCORE_HIPCC)
  set(hip_flags -x hip --offload-arch=gfx90a -std=c++20 -O3 -ffp-contract=off -Wall -Wextra -Werror -fPIC
    -fvisibility=hidden -shared)
  device_library(hip ${CMAKE_CURRENT_BINARY_DIR}/libdarl_device_hip.so ${DARLCORE_HIPCC} ${hip_flags})
endif()
# The same source run thread by thread on the host: what tests its arithmetic where there is no device.
device_library(emulated ${CMAKE_CURRENT_BINARY_DIR}/libdarl_device_emulated.so ${CMAKE_CXX_COMPILER} -x c++ -std=c++20 -O2
  -ffp-contract=off -Wall -Wextra -Werror -fPIC -fvisibility=hidden -shared)
set(DARLCORE_DEVICE_FOLDER ${CMAKE_CURRENT_BINARY_DIR} CACHE INTERNAL "where the libraries of device kernels are built")
