// SPDX-License-Identifier: Apache-2.0
#include "backends/host/cpu_backend.hpp"

int main() {
    darlcore::host::cpu_backend backend;
    darlcore::host::cpu_backend::queue queue;
    const float values[] = {3, -4};
    const auto scan = backend.scan(queue, {values, 2, darlcore::dtype::f32});
    return scan.has_value() && backend.threads() > 0 ? 0 : 1;
}
