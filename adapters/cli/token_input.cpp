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

void add_server_access(CLI::App* command, server_access& a, CLI::Option* needs) {
    CLI::Option* all[] = {
        command->add_option("--token-file", a.token_file, "file (mode 0600) with the token; else DARL_TOKEN"),
        command->add_option("--proxy", a.proxy, "none (default), env or a URL; wins over network.proxy of a run file"),
        command->add_option("--ca-file", a.ca_file, "PEM file: the authority of the server's certificate"),
        command->add_option("--client-certificate", a.client_certificate, "PEM file, where the server asks for one"),
        command->add_option("--client-key", a.client_key, "PEM file with its key"),
        command->add_flag("--insecure", a.insecure, "allow a token over plain HTTP to another machine")};
    if (needs != nullptr)
        for (CLI::Option* one : all) one->needs(needs);
}

result<darlcore::client::client_options> server_options(const server_access& a) {
    darlcore::client::client_options out;
    out.base_url = a.url;
    out.insecure = a.insecure;
    out.ca_file = a.ca_file;
    out.client_certificate_file = a.client_certificate;
    out.client_key_file = a.client_key;
    if (a.client_certificate.empty() != a.client_key.empty())
        return fail(errc::invalid_argument, "--client-certificate and --client-key belong together");
    auto choice = darlcore::client::parse_proxy(a.proxy.empty() ? "none" : a.proxy);
    if (!choice) return choice.error();
    out.proxy = *choice;
    if (!a.token_file.empty()) {
        auto token = token_from_file(a.token_file);
        if (!token) return token.error();
        out.token = *token;
    } else if (const char* token = std::getenv("DARL_TOKEN")) {
        if (*token == '\0') return fail(errc::token, "DARL_TOKEN is set but empty; unset it or give it a value");
        out.token = token;
    }
    return out;
}

}  // namespace darl
