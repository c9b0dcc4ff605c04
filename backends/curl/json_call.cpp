// SPDX-License-Identifier: Apache-2.0
#include "backends/curl/json_call.hpp"

#include <fmt/format.h>

namespace darlcore::client {

error json_answer::as_error() const {
    const auto known = errc_from_word(code);
    return fail(known.value_or(errc::internal),
                sentence.empty() ? fmt::format("the server answered {}", status) : sentence);
}

result<json_answer> json_call(http_client& client, std::string_view path, const json::value& body,
                              std::int64_t call_ms) {
    call c;
    c.path = std::string(path);
    c.call_ms = call_ms;
    std::string text;
    if (!body.is_null()) {
        c.method = "POST";
        text = json::dump(body);
        c.body = text;
    }
    auto got = client.perform(c);
    if (!got) return std::move(got).error();
    if (!got->from_darl) {
        return fail(errc::unreachable,
                    fmt::format("a proxy or another server answered {} instead of darl serve; check the URL and the "
                                "proxy setting",
                                got->status));
    }
    json_answer out;
    out.status = got->status;
    out.retry_after_s = got->retry_after_s;
    out.seconds = got->seconds;
    auto parsed = json::parse(got->body, {client.options().answer_bytes_max, 64});
    if (parsed)
        out.body = std::move(*parsed);
    else if (out.ok())
        return fail(errc::parse_error, "the server's answer is not JSON");
    if (!out.ok()) {
        const json::value* code = out.body.find("code");
        const json::value* sentence = out.body.find("error");
        if (code != nullptr && code->as_string() != nullptr) out.code = *code->as_string();
        if (sentence != nullptr && sentence->as_string() != nullptr) out.sentence = *sentence->as_string();
        const json::value* wait = out.body.find("retry_after");
        if (wait != nullptr && wait->as_double())
            out.retry_after_s = std::max(out.retry_after_s.value_or(0), *wait->as_double());
    }
    return out;
}

result<json_answer> retrying_json_call(http_client& client, std::string_view path, const json::value& body,
                                       const retry_world& world, const retry_policy& policy, std::int64_t call_ms) {
    for (int n = 1;; ++n) {
        auto got = json_call(client, path, body, call_ms);
        const bool again = got ? is_retried(got->status) : is_retried(got.error().code);
        if (!again || n >= policy.tries_max) return got;
        const double asked = got ? got->retry_after_s.value_or(0) : 0;
        if (!world.sleep(retry_delay_s(n, world.uniform(), asked, policy))) return got;
    }
}

}  // namespace darlcore::client
