// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/test_only.hpp"

int main() {
    darlcore::slurm::test_only_options options;
    options.now_s = 1'750'000'000;
    const auto answer =
        darlcore::slurm::parse_test_only("sbatch: error: Batch job submission failed: nothing to read", options);
    return answer.start_s ? 1 : 0;
}
