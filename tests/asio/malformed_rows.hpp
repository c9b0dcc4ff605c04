// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace darlcore::http::testing {

/// One malformed request and the status it is answered with.
struct malformed_row {
    std::string name;
    std::string bytes;
    int status;
};

/// The table: more than 300 rows, each wrong in one way.
std::vector<malformed_row> malformed_rows();

}  // namespace darlcore::http::testing
