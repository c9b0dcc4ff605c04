// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/device/device_library.hpp"

#include <dlfcn.h>

namespace darlcore::device {

namespace {

/// False when the library lacks it.
template <class Function>
bool find(void* handle, const char* name, Function& to) {
    to = reinterpret_cast<Function>(::dlsym(handle, name));
    return to != nullptr;
}

}  // namespace

result<device_library> device_library::load(const std::string& path) {
    // Never closed: a vendor's runtime keeps threads and handlers.
    void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* reason = ::dlerror();
        return fail(errc::not_found,
                    path + ": cannot load device kernels: " + (reason != nullptr ? reason : "unknown"));
    }
    decltype(&::darl_device_abi_version) version = nullptr;
    if (!find(handle, "darl_device_abi_version", version))
        return fail(errc::unsupported, path + ": is no library of device kernels");
    if (version() != DARL_DEVICE_ABI)
        return fail(errc::unsupported, path + ": speaks version " + std::to_string(version()) + " of the interface, " +
                                           std::to_string(DARL_DEVICE_ABI) + " is needed: build it anew");
    device_library lib;
    lib.path = path;
    const bool whole =
        find(handle, "darl_device_count", lib.count) && find(handle, "darl_device_allocate", lib.allocate) &&
        find(handle, "darl_device_release", lib.release) && find(handle, "darl_device_copy_in", lib.copy_in) &&
        find(handle, "darl_device_copy_out", lib.copy_out) && find(handle, "darl_device_wait", lib.wait) &&
        find(handle, "darl_device_outer_step", lib.outer_step) && find(handle, "darl_device_scan", lib.scan) &&
        find(handle, "darl_device_convert", lib.convert) && find(handle, "darl_device_error_text", lib.error_text);
    if (!whole) return fail(errc::unsupported, path + ": a function of the interface is missing");
    return lib;
}

result<void> device_library::check(int status, const char* action) const {
    if (status == 0) return {};
    constexpr int no_memory = 2;  // of both vendors
    return fail(status == no_memory ? errc::out_of_memory : errc::io_error,
                std::string("device: ") + action + ": " + error_text() + " (" + std::to_string(status) + ")");
}

result<int> device_library::devices() const {
    int found = 0;
    const int status = count(&found);
    if (status != 0 || found == 0)
        return fail(errc::not_found, "no device: " + std::string(status != 0 ? error_text() : "none is installed"));
    return found;
}

}  // namespace darlcore::device
