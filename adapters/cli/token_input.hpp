// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "backends/curl/http_client.hpp"
#include "darlcore/error.hpp"

namespace darl {

/// Where a server is and how it is reached, as the command line says it.
struct server_access {
    std::string url;
    std::string token_file;
    std::string proxy;  // none, env or a URL; empty: none
    std::string ca_file;
    std::string client_certificate;
    std::string client_key;
    bool insecure = false;
};

/// The options that say how a server is reached; `--server` itself is the command's own. `needs`: an option without
/// which they make no sense.
void add_server_access(CLI::App* command, server_access& a, CLI::Option* needs = nullptr);

/// The token comes from a file of mode 0600, else from DARL_TOKEN; never from the command line. A variable or file that
/// is set but empty is an error, not "no token".
/// Errors: errc::invalid_argument (URL, proxy, certificates), errc::token (file missing, empty, readable by others).
darlcore::result<darlcore::client::client_options> server_options(const server_access& a);

}  // namespace darl
