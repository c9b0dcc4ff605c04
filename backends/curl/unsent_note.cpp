// SPDX-License-Identifier: Apache-2.0
#include "backends/curl/unsent_note.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "adapters/formats/json.hpp"

namespace darlcore::client {
namespace {

std::string note_path(const std::string& folder) { return folder + "/unsent.json"; }

json::value to_json(const site::unsent_contribution& note) {
    const auto& r = note.result;
    json::value claims{json::array{}};
    for (const auto& c : note.claims) {
        json::value one = json::make_object({{"epoch", c.lease.epoch.count},
                                             {"start", c.lease.start.count},
                                             {"seq", c.lease.seq.count},
                                             {"from", c.from.count},
                                             {"through", c.through.count}});
        if (c.lease.token) one.set("token", lease::to_text(*c.lease.token));
        claims.push_back(std::move(one));
    }
    return json::make_object({{"schema", 1},
                              {"base", note.base.count},
                              {"groups", r.groups},
                              {"id", r.id.text},
                              {"sha256", r.blob.sha256},
                              {"bytes", r.blob.bytes},
                              {"codec", r.codec},
                              {"tokens", r.tokens},
                              {"steps", r.steps},
                              {"loss_sum", r.loss_sum},
                              {"loss_count", r.loss_count},
                              {"compute_ms", r.compute_ms},
                              {"claims", claims}});
}

std::optional<site::unsent_contribution> from_json(const json::value& v) {
    bool ok = true;
    const auto number = [&](const json::value& in, std::string_view key) -> std::uint64_t {
        const auto* member = in.find(key);
        const auto n = member != nullptr ? member->as_u64() : std::nullopt;
        ok = ok && n.has_value();
        return n.value_or(0);
    };
    const auto text = [&](const json::value& in, std::string_view key) -> std::string {
        const auto* member = in.find(key);
        const auto* s = member != nullptr ? member->as_string() : nullptr;
        ok = ok && s != nullptr;
        return s != nullptr ? *s : std::string();
    };
    site::unsent_contribution note;
    note.base = generation{number(v, "base")};
    auto& r = note.result;
    r.groups = number(v, "groups");
    r.id.text = text(v, "id");
    r.blob = {text(v, "sha256"), number(v, "bytes")};
    r.codec = text(v, "codec");
    r.tokens = number(v, "tokens");
    r.steps = number(v, "steps");
    r.loss_count = number(v, "loss_count");
    r.compute_ms = static_cast<std::int64_t>(number(v, "compute_ms"));
    const auto* loss = v.find("loss_sum");
    ok = ok && loss != nullptr && loss->as_double().has_value();
    if (ok) r.loss_sum = *loss->as_double();
    const auto* claims = v.find("claims");
    if (claims == nullptr || claims->as_array() == nullptr) return std::nullopt;
    for (const auto& one : *claims->as_array()) {
        lease::claim c;
        c.lease.epoch = epoch_index{static_cast<std::uint32_t>(number(one, "epoch"))};
        c.lease.start = position{number(one, "start")};
        c.lease.seq = lease_seq{number(one, "seq")};
        if (one.contains("token")) c.lease.token = lease::parse_token(text(one, "token"));
        c.from = position{number(one, "from")};
        c.through = position{number(one, "through")};
        note.claims.push_back(c);
    }
    return ok ? std::optional(note) : std::nullopt;
}

error io_failure(const std::string& path) {
    return fail(errc::io_error, fmt::format("{}: {}", path, std::strerror(errno)));
}

}  // namespace

result<void> write_unsent(const std::string& folder, const site::unsent_contribution& note) {
    const std::string path = note_path(folder);
    const std::string staging = path + ".tmp";
    const std::string text = json::dump(to_json(note)) + "\n";
    const int fd = ::open(staging.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return io_failure(staging);
    const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
    ::close(fd);
    if (!written || ::rename(staging.c_str(), path.c_str()) != 0) return io_failure(staging);
    const int dir = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool synced = dir >= 0 && ::fsync(dir) == 0;
    if (dir >= 0) ::close(dir);
    if (!synced) return io_failure(folder);
    return {};
}

result<std::optional<site::unsent_contribution>> read_unsent(const std::string& folder) {
    const std::string path = note_path(folder);
    std::ifstream in(path, std::ios::binary);
    if (!in) return std::optional<site::unsent_contribution>();
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const auto parsed = json::parse(text);
    auto note = parsed ? from_json(*parsed) : std::nullopt;
    if (!note)
        return fail(
            errc::corrupt,
            fmt::format("{}: is not a note of this program; remove it to go on without that contribution", path));
    return note;
}

void remove_unsent(const std::string& folder, const contribution_id& id) {
    const auto note = read_unsent(folder);
    if (note && *note && (*note)->result.id == id) ::unlink(note_path(folder).c_str());
}

}  // namespace darlcore::client
