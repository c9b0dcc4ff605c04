// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/token_input.hpp"

#include <cstdlib>
#include <fstream>

#include <sys/stat.h>

#include <fmt/format.h>

namespace darl {

using darlcore::errc;
using darlcore::fail;
using darlcore::result;

namespace {

result<std::string> token_from_file(const std::string& path) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0)
        return fail(errc::token, fmt::format("{}: the token file is not there", path));
    if ((info.st_mode & 077U) != 0) return fail(errc::token, fmt::format("{}: readable by others; chmod 600 it", path));
    std::ifstream in(path);
    std::string token;
    in >> token;
    if (token.empty()) return fail(errc::token, fmt::format("{}: is empty", path));
    return token;
}

}  // namespace

result<darlcore::client::client_options> server_options(const std::string& url, const std::string& token_file,
                                                        const std::string& proxy, bool insecure) {
    darlcore::client::client_options out;
    out.base_url = url;
    out.insecure = insecure;
    auto choice = darlcore::client::parse_proxy(proxy.empty() ? "none" : proxy);
    if (!choice) return choice.error();
    out.proxy = *choice;
    if (!token_file.empty()) {
        auto token = token_from_file(token_file);
        if (!token) return token.error();
        out.token = *token;
    } else if (const char* token = std::getenv("DARL_TOKEN")) {
        if (*token == '\0') return fail(errc::token, "DARL_TOKEN is set but empty; unset it or give it a value");
        out.token = token;
    }
    return out;
}

}  // namespace darl
