// SPDX-License-Identifier: Apache-2.0
#include "backends/sim/disk.hpp"

int main() {
    darlcore::sim::disk disk;
    if (!darlcore::storage::ensure_directory(disk, "/run").has_value()) return 1;
    if (!darlcore::storage::replace_file(disk, "/run/term", "7").has_value()) return 1;
    darlcore::sim::disk after(disk.image().after_power_cut(darlcore::sim::loss::dropped, 1));
    const auto text = darlcore::storage::read_file(after, "/run/term");
    return text.has_value() && *text == "7" ? 0 : 1;
}
