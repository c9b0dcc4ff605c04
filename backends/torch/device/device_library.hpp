// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "backends/torch/device/device_abi.h"
#include "darlcore/error.hpp"

namespace darlcore::device {

/// The functions of a library of device kernels (device_abi.h), loaded at run time: a program needs no vendor's
/// runtime to start.
struct device_library {
    std::string path;
    decltype(&::darl_device_count) count = nullptr;
    decltype(&::darl_device_allocate) allocate = nullptr;
    decltype(&::darl_device_release) release = nullptr;
    decltype(&::darl_device_copy_in) copy_in = nullptr;
    decltype(&::darl_device_copy_out) copy_out = nullptr;
    decltype(&::darl_device_wait) wait = nullptr;
    decltype(&::darl_device_outer_step) outer_step = nullptr;
    decltype(&::darl_device_scan) scan = nullptr;
    decltype(&::darl_device_convert) convert = nullptr;
    decltype(&::darl_device_error_text) error_text = nullptr;

    /// Loads and checks it; it stays in memory until the process ends.
    /// Errors: errc::not_found (with the loader's words), errc::unsupported (another version of the interface,
    /// or a function is missing).
    static result<device_library> load(const std::string& path);

    /// Success, or errc::out_of_memory / errc::io_error with the library's words.
    [[nodiscard]] result<void> check(int status, const char* action) const;

    /// Devices that can be used now, or why there is none.
    /// Errors: errc::not_found.
    [[nodiscard]] result<int> devices() const;
};

}  // namespace darlcore::device
