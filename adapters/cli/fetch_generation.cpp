// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/fetch_generation.hpp"

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "backends/curl/blob_transfer.hpp"

namespace darl {

namespace {

using namespace darlcore;

client::retry_world patient_world() {
    const auto draws = std::make_shared<std::mt19937_64>(std::random_device{}());
    return {[draws] { return static_cast<double>((*draws)() >> 11U) * 0x1p-53; },
            [](double seconds) {
                std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
                return true;
            }};
}

struct wire_weights {
    std::int64_t generation = 0;
    std::string sha256;
    std::uint64_t bytes = 0;
};

result<wire_weights> current_weights(client::http_client& http, const generation_request& r) {
    auto told = client::retrying_json_call(http, "/status", json::value(), patient_world(), {});
    if (!told) return told.error();
    if (!told->ok()) return told->as_error();
    const json::value* wire = told->body.find("wire");
    if (wire == nullptr)
        return fail(errc::not_found, r.server.url + ": the run has no weights yet; the first site makes them");
    const auto* generation = wire->find("generation");
    const auto* sha256 = wire->find("sha256");
    const auto* bytes = wire->find("bytes");
    if (generation == nullptr || !generation->as_i64() || sha256 == nullptr || sha256->as_string() == nullptr ||
        bytes == nullptr || !bytes->as_u64())
        return fail(errc::parse_error,
                    r.server.url + ": its status does not describe the weights; is it a darl serve?");
    if (r.generation >= 0 && r.generation != *generation->as_i64())
        return fail(errc::not_found,
                    fmt::format("{}: has generation {} now, not {}; leave --generation out, or read an "
                                "older one with --state-dir where the server runs",
                                r.server.url, *generation->as_i64(), r.generation));
    return wire_weights{*generation->as_i64(), *sha256->as_string(), *bytes->as_u64()};
}

}  // namespace

result<std::int64_t> fetch_generation(const generation_request& request) {
    auto options = server_options(request.server);
    if (!options) return options.error();
    auto http = client::http_client::make(*std::move(options));
    if (!http) return http.error();
    const auto weights = current_weights(*http, request);
    if (!weights) return weights.error();
    client::transfer_options transfer;
    transfer.failures_max = 6;
    const auto done =
        client::download_blob(*http, weights->sha256, weights->bytes, request.path, patient_world(), transfer);
    if (done) return weights->generation;
    std::error_code ignored;
    std::filesystem::remove(request.path + ".part", ignored);
    return done.error();
}

}  // namespace darl
