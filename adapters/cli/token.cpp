// SPDX-License-Identifier: Apache-2.0
// `darl token new`: a token for a site and the line for the server's token file.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "adapters/cli/cli_support.hpp"
#include "adapters/formats/json.hpp"
#include "backends/asio/token_file.hpp"
#include "darlcore/units.hpp"

namespace darl {
namespace {

using darlcore::errc;
using darlcore::fail;
namespace http = darlcore::http;

struct token_arguments {
    std::string site;
    std::vector<std::string> scopes{"lease", "blob"};
    std::string out;
    std::optional<std::int64_t> not_before;
    std::optional<std::int64_t> expires;
};

void run_token(session& s, const token_arguments& a) {
    if (!darlcore::is_valid_name(a.site))
        return report(s, fail(errc::invalid_argument, "--site must be a name of letters, digits, '.', '_' and '-'"));
    if (const auto ok = http::parse_scopes(a.scopes); !ok) return report(s, ok.error());
    const auto token = http::new_token();
    if (!token) return report(s, token.error());
    const std::string path = a.out.empty() ? a.site + ".token" : a.out;
    if (const auto ok = http::write_secret_file(path, *token + "\n"); !ok) return report(s, ok.error());
    const std::string line = http::token_line(a.site, *token, a.scopes, a.not_before, a.expires);
    if (s.json) {
        const auto parsed = darlcore::json::parse(line);
        print_line(darlcore::json::dump(darlcore::json::make_object({{"token_file", path}, {"line", *parsed}})));
        return;
    }
    print_line(line);
    fmt::print(stderr,
               "The token is in {} (mode 0600): bring it to the site, give it to darl train as --token-file.\n"
               "Append the line above to the server's token file (mode 0600) and send the server SIGHUP.\n",
               path);
}

}  // namespace

void add_token(CLI::App& app, session& s) {
    auto a = std::make_shared<token_arguments>();
    auto* group = app.add_subcommand("token", "tokens of the sites");
    group->require_subcommand(1);
    auto* c = group->add_subcommand("new", "make a token for a site and the line for the server's token file");
    c->add_option("--site", a->site, "the site that uses it; replicas NAME-r0, NAME-a are included")->required();
    c->add_option("--scopes", a->scopes,
                  "of lease, blob, read, probe, admin (lease includes read and probe, admin all)")
        ->delimiter(',');
    c->add_option("--out", a->out, "file for the token (default: SITE.token)");
    c->add_option("--not-before", a->not_before, "Unix seconds from which on it is valid");
    c->add_option("--expires", a->expires, "Unix seconds from which on it is not valid any more");
    c->footer("Example: darl token new --site alpha --scopes lease,blob >> tokens");
    c->callback([&s, a] { run_token(s, *a); });
}

}  // namespace darl
