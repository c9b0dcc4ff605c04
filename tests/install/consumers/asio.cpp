// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/token_file.hpp"

int main() {
    const auto table = darlcore::http::token_table::bare("a token for every site");
    return table.find("a token for every site", 0) && !table.find("another", 0) ? 0 : 1;
}
