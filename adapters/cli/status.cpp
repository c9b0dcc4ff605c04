// SPDX-License-Identifier: Apache-2.0
// `darl status URL`: what is leased, pledged, committed; sites; rounds; who waits for what.
#include <memory>
#include <string>

#include "adapters/cli/cli_support.hpp"
#include "adapters/cli/token_input.hpp"
#include "backends/curl/json_call.hpp"

namespace darl {
namespace {

using darlcore::errc;
using darlcore::fail;
namespace client = darlcore::client;

void run_status(session& s, const server_access& a) {
    auto options = server_options(a);
    if (!options) return report(s, options.error());
    auto made = client::http_client::make(std::move(*options));
    if (!made) return report(s, made.error());
    client::call call;
    call.path = s.json ? "/status" : "/";
    call.headers.emplace_back("Accept", s.json ? "application/json" : "text/plain");
    const auto got = made->perform(call);
    if (!got) return report(s, got.error());
    if (!got->from_darl)
        return report(s, fail(errc::unreachable,
                              "something else than darl serve answers there; check the URL and the proxy setting"));
    if (got->status != 200) {
        const auto body = darlcore::json::parse(got->body);
        const auto* sentence = body ? body->find("error") : nullptr;
        const bool told = sentence != nullptr && sentence->as_string() != nullptr;
        const errc code = got->status == 401 || got->status == 403 ? errc::token
                          : got->status == 503                     ? errc::restarting
                                                                   : errc::internal;
        return report(s,
                      fail(code, told ? *sentence->as_string() : "the server answered " + std::to_string(got->status)));
    }
    std::string text = got->body;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    print_line(text);
}

}  // namespace

void add_status(CLI::App& app, session& s) {
    auto a = std::make_shared<server_access>();
    auto* c = app.add_subcommand("status", "what is leased, pledged and committed at a server, and who waits for what");
    c->add_option("URL", a->url, "of darl serve")->required();
    add_server_access(c, *a);
    c->footer("Example: darl status http://127.0.0.1:8760");
    c->callback([&s, a] { run_status(s, *a); });
}

}  // namespace darl
