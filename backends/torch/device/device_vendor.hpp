// SPDX-License-Identifier: Apache-2.0
#pragma once

// What differs between the vendors, so that device_kernels.cu is one source. Without a vendor's compiler the same
// source becomes a library that runs its threads one after the other on the host: that is how its arithmetic is tested
// on machines without a device.
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#define DARL_VENDOR(name) cuda##name
#elif defined(__HIPCC__) || defined(__HIP__)
#include <hip/hip_runtime.h>
#define DARL_VENDOR(name) hip##name
#else
#define DARL_EMULATED 1
#endif

#if defined(DARL_EMULATED)
#include <cfenv>
#include <cstdlib>
#define DARL_ANYWHERE inline
#else
#define DARL_ANYWHERE __device__ __forceinline__
#endif

namespace darl_device {

// Rounded to f32 on its own, never fused into a multiply-add. HIP and the host are compiled with -ffp-contract=off.
DARL_ANYWHERE float product(float a, float b) {
#if defined(__CUDACC__)
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}
DARL_ANYWHERE float sum(float a, float b) {
#if defined(__CUDACC__)
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

/// Where a thread stands among all of a launch.
struct place {
    std::uint64_t index;
    std::uint64_t count;
};

#if defined(DARL_EMULATED)

/// A device keeps denormals whatever mode the calling thread is in.
class exact_mode {
public:
    exact_mode() {
        std::fegetenv(&saved_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~exact_mode() { std::fesetenv(&saved_); }
    exact_mode(const exact_mode&) = delete;
    exact_mode& operator=(const exact_mode&) = delete;

private:
    std::fenv_t saved_{};
};

using status = int;
using stream = void*;
inline status last_status() { return 0; }
inline status get_count(int* count) {
    *count = 1;
    return 0;
}
inline status allocate(void** memory, std::uint64_t bytes) {
    *memory = std::malloc(bytes == 0 ? 1 : bytes);
    return *memory == nullptr ? 2 : 0;
}
inline status release(void* memory) {
    std::free(memory);
    return 0;
}
inline status copy(void* to, const void* from, std::uint64_t bytes, bool, stream) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return 0;
}
inline status wait(stream) { return 0; }
inline const char* text_of(status s) { return s == 2 ? "out of memory" : "no error"; }

#else

using status = int;
using stream = DARL_VENDOR(Stream_t);
inline status last_status() { return static_cast<status>(DARL_VENDOR(GetLastError)()); }
inline status get_count(int* count) { return static_cast<status>(DARL_VENDOR(GetDeviceCount)(count)); }
inline status allocate(void** memory, std::uint64_t bytes) {
    return static_cast<status>(DARL_VENDOR(Malloc)(memory, bytes == 0 ? 1 : bytes));
}
inline status release(void* memory) { return static_cast<status>(DARL_VENDOR(Free)(memory)); }
inline status copy(void* to, const void* from, std::uint64_t bytes, bool in, stream s) {
    if (bytes == 0) return 0;
    const auto kind = in ? DARL_VENDOR(MemcpyHostToDevice) : DARL_VENDOR(MemcpyDeviceToHost);
    return static_cast<status>(DARL_VENDOR(MemcpyAsync)(to, from, bytes, kind, s));
}
inline status wait(stream s) { return static_cast<status>(DARL_VENDOR(StreamSynchronize)(s)); }
inline const char* text_of(status s) { return DARL_VENDOR(GetErrorString)(static_cast<DARL_VENDOR(Error_t)>(s)); }

#endif

}  // namespace darl_device
