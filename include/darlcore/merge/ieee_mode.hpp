// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfenv>

namespace darlcore {

/// While it lives the calling thread computes as IEEE 754 says: nearest, denormals kept. Afterwards the caller's mode
/// is back. Reason: a thread may run with flush-to-zero on (numeric libraries switch it on), and the same inputs must
/// give the same bits. Put only calls with memory operands inside; a compiler may move register arithmetic across it.
class ieee_mode {
public:
    ieee_mode() {
        std::fegetenv(&saved_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~ieee_mode() { std::fesetenv(&saved_); }
    ieee_mode(const ieee_mode&) = delete;
    ieee_mode& operator=(const ieee_mode&) = delete;

private:
    std::fenv_t saved_{};
};

}  // namespace darlcore
