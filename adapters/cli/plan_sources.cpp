// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/plan_sources.hpp"

#include <fstream>
#include <iterator>

#include <fmt/format.h>

#include "backends/curl/json_call.hpp"
#include "backends/slurm/job_history.hpp"
#include "darlcore/units.hpp"

namespace darl {

using darlcore::errc;
using darlcore::fail;
using darlcore::result;
namespace client = darlcore::client;

namespace {

constexpr std::size_t history_bytes_max = std::size_t{1} << 30U;
constexpr std::size_t answer_bytes_max = std::size_t{64} << 20U;

result<client::answer> perform(const server_access& server, const client::call& call) {
    auto options = server_options(server);
    if (!options) return options.error();
    auto made = client::http_client::make(std::move(*options));
    if (!made) return made.error();
    auto got = made->perform(call);
    if (!got) return got.error();
    if (!got->from_darl)
        return fail(errc::unreachable,
                    "something else than darl serve answers there; check the URL and the proxy setting");
    if (got->status >= 200 && got->status < 300) return got;
    const auto body = darlcore::json::parse(got->body);
    const auto* sentence = body ? body->find("error") : nullptr;
    const auto* code = body ? body->find("code") : nullptr;
    const auto known =
        code != nullptr && code->as_string() != nullptr ? darlcore::errc_from_word(*code->as_string()) : std::nullopt;
    return fail(known.value_or(got->status == 404 ? errc::not_found : errc::internal),
                sentence != nullptr && sentence->as_string() != nullptr
                    ? *sentence->as_string()
                    : fmt::format("the server answered {}", got->status));
}

}  // namespace

result<darlcore::json::value> ask_server(const server_access& server, const std::string& path) {
    client::call call;
    call.path = path;
    std::string text;
    call.sink = [&](std::string_view piece) {
        text += piece;
        return text.size() <= answer_bytes_max;
    };
    const auto got = perform(server, call);
    if (!got) return got.error();
    return darlcore::json::parse(text.empty() ? got->body : text, {answer_bytes_max, 34});
}

result<void> publish_plan(const server_access& server, const darlcore::json::value& document) {
    const std::string text = darlcore::json::dump(document);
    client::call call;
    call.method = "PUT";
    call.path = "/plan";
    call.body = text;
    if (const auto got = perform(server, call); !got) return got.error();
    return {};
}

result<plan_io::histories> read_histories(const std::vector<std::string>& arguments) {
    plan_io::histories made;
    for (const std::string& a : arguments) {
        const auto equals = a.find('=');
        const std::string site = a.substr(0, equals);
        if (equals == std::string::npos || !darlcore::is_valid_name(site))
            return fail(errc::bad_request, fmt::format("--history '{}' must be SITE=FILE", a));
        const std::string path = a.substr(equals + 1);
        std::ifstream in(path, std::ios::binary | std::ios::ate);
        if (!in) return fail(errc::not_found, fmt::format("{}: cannot be read; give a SWF file or sacct rows", path));
        if (static_cast<std::size_t>(in.tellg()) > history_bytes_max)
            return fail(errc::bad_request, fmt::format("{}: larger than 1 GiB; cut it to the last weeks", path));
        in.seekg(0);
        const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
        auto history = darlcore::slurm::read_history(text);
        if (!history) return fail(history.error().code, fmt::format("{}: {}", path, history.error().context));
        made[site] = std::move(history->jobs);
    }
    return made;
}

}  // namespace darl
