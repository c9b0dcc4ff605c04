// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "backends/curl/http_client.hpp"
#include "darlcore/error.hpp"

namespace darl {

/// Where the server is and how to get there. The token comes from a file of mode 0600, else from DARL_TOKEN; never from
/// the command line. A variable or file that is set but empty is an error, not "no token". Errors:
/// errc::invalid_argument (URL, proxy), errc::token (file missing, empty, readable by others).
darlcore::result<darlcore::client::client_options> server_options(const std::string& url, const std::string& token_file,
                                                                  const std::string& proxy, bool insecure);

}  // namespace darl
