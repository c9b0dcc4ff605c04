// SPDX-License-Identifier: Apache-2.0
#include "backends/curl/blob_transfer.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "backends/storage/sha256.hpp"

namespace darlcore::client {
namespace {

class file {
public:
    file(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)), path_(path) {}
    ~file() {
        if (fd_ >= 0) ::close(fd_);
    }
    file(const file&) = delete;
    file& operator=(const file&) = delete;
    [[nodiscard]] bool open() const { return fd_ >= 0; }
    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] error failure() const {
        return fail(errc::io_error, fmt::format("{}: {}", path_, std::strerror(errno)));
    }

    result<std::string> read(std::uint64_t offset, std::size_t bytes) const {
        std::string out(bytes, '\0');
        std::size_t got = 0;
        while (got < bytes) {
            const ssize_t n = ::pread(fd_, out.data() + got, bytes - got, static_cast<off_t>(offset + got));
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) return failure();
            if (n == 0)
                return fail(errc::short_read,
                            fmt::format("{}: ends at {} bytes while it is uploaded", path_, offset + got));
            got += static_cast<std::size_t>(n);
        }
        return out;
    }
    bool append(std::string_view bytes) const {
        while (!bytes.empty()) {
            const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return false;
            bytes.remove_prefix(static_cast<std::size_t>(n));
        }
        return true;
    }
    [[nodiscard]] std::uint64_t size() const {
        struct stat info {};
        return ::fstat(fd_, &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
    }

private:
    int fd_;
    std::string path_;
};

std::optional<std::uint64_t> number_of(const std::string* text) {
    if (text == nullptr) return std::nullopt;
    std::uint64_t value = 0;
    const auto read = std::from_chars(text->data(), text->data() + text->size(), value);
    return read.ec == std::errc{} && read.ptr == text->data() + text->size() ? std::optional(value) : std::nullopt;
}

error error_of(const answer& a) {
    const auto body = json::parse(a.body);
    const std::string* code =
        body ? (body->find("code") != nullptr ? body->find("code")->as_string() : nullptr) : nullptr;
    const std::string* text =
        body ? (body->find("error") != nullptr ? body->find("error")->as_string() : nullptr) : nullptr;
    return fail(code != nullptr ? errc_from_word(*code).value_or(errc::internal) : errc::unreachable,
                text != nullptr ? *text : fmt::format("the server answered {}", a.status));
}

/// Counts failures without progress and waits between them.
class patience {
public:
    patience(const retry_world& world, int failures_max) : world_(world), failures_max_(failures_max) {}
    void progressed() { failures_ = 0; }
    /// False: enough, or a stop was asked for.
    bool wait(double at_least_s = 0) {
        if (++failures_ >= failures_max_) return false;
        return world_.sleep(std::min(retry_delay_s(std::min(failures_, 9), world_.uniform(), at_least_s), 60.0));
    }

private:
    const retry_world& world_;
    int failures_max_;
    int failures_ = 0;
};

struct announced {
    bool stored = false;
    std::string upload;
    std::uint64_t offset = 0;
    std::uint64_t part_bytes_max = 0;
};

result<announced> announce(http_client& client, const upload_job& job, const retry_world& world) {
    json::value body = json::make_object({{"cluster", job.who.site.name},
                                          {"incarnation", to_text(job.who.incarnation)},
                                          {"bytes", job.bytes},
                                          {"sha256", job.sha256},
                                          {"purpose", job.purpose},
                                          {"codec", job.codec},
                                          {"base_generation", job.base.count}});
    const auto reply = retrying_json_call(client, "/blobs", body, world);
    if (!reply) return reply.error();
    if (!reply->ok()) return reply->as_error();
    announced out;
    const auto* stored = reply->body.find("stored");
    out.stored = stored != nullptr && stored->as_bool().value_or(false);
    if (out.stored) return out;
    const auto* upload = reply->body.find("upload");
    if (upload == nullptr || upload->as_string() == nullptr)
        return fail(errc::parse_error, "the server's answer has no usable field 'upload'");
    out.upload = *upload->as_string();
    if (const auto* offset = reply->body.find("offset")) out.offset = offset->as_u64().value_or(0);
    if (const auto* part = reply->body.find("part_bytes_max")) out.part_bytes_max = part->as_u64().value_or(0);
    return out;
}

result<answer> send_part(http_client& client, const upload_job& job, const announced& to, std::uint64_t offset,
                         const std::string& part, const transfer_options& options) {
    call c;
    c.method = "PATCH";
    c.path = "/blobs/uploads/" + to.upload;
    c.content_type = "application/octet-stream";
    c.body = part;
    c.call_ms = options.part_ms;
    c.headers = {{"Upload-Offset", std::to_string(offset)},
                 {"Upload-Checksum", "sha256 " + storage::sha256_hex(part)},
                 {"X-DARL-Cluster", job.who.site.name},
                 {"X-DARL-Incarnation", to_text(job.who.incarnation)}};
    return client.perform(c);
}

}  // namespace

result<void> upload_blob(http_client& client, const upload_job& job, const retry_world& world,
                         const transfer_options& options) {
    const file in(job.path, O_RDONLY);
    if (!in.open()) return in.failure();
    auto to = announce(client, job, world);
    if (!to) return to.error();
    part_sizer sizer(to->part_bytes_max != 0 ? std::min(options.part_bytes_max, to->part_bytes_max)
                                             : options.part_bytes_max);
    patience waits(world, options.failures_max);
    while (!to->stored) {
        const auto part = in.read(
            to->offset, static_cast<std::size_t>(std::min(sizer.bytes(), job.bytes - std::min(job.bytes, to->offset))));
        if (!part) return part.error();
        const auto reply = send_part(client, job, *to, to->offset, *part, options);
        if (!reply && !is_retried(reply.error().code)) return reply.error();
        if (reply && (reply->status == 200 || reply->status == 201)) return {};
        if (reply && reply->status == 204) {
            to->offset = number_of(reply->header("upload-offset")).value_or(to->offset + part->size());
            sizer.succeeded();
            waits.progressed();
            continue;
        }
        // what the server has is the truth: ask again what it has stored; an upload that it does not know begins anew
        const bool lost = reply && (reply->status == 410 || reply->status == 409);
        if (reply && !lost && !is_retried(reply->status)) return error_of(*reply);
        if (reply && reply->status == 409) {
            if (const auto offset = number_of(reply->header("upload-offset"))) {
                to->offset = *offset;
                if (!waits.wait()) return error_of(*reply);
                continue;
            }
            // without an offset: the server still reads what it has (after a restart); anything else is for good
            const error why = error_of(*reply);
            if (why.code != errc::offset_mismatch || !waits.wait(reply->retry_after_s.value_or(0))) return why;
            continue;
        }
        sizer.failed();
        if (!waits.wait(reply ? reply->retry_after_s.value_or(0) : 0)) return reply ? error_of(*reply) : reply.error();
        to = announce(client, job, world);
        if (!to) return to.error();
    }
    return {};
}

result<void> download_blob(http_client& client, const std::string& sha256, std::uint64_t bytes, const std::string& path,
                           const retry_world& world, const transfer_options& options) {
    const std::string staging = path + ".part";
    part_sizer sizer(options.part_bytes_max);
    patience waits(world, options.failures_max);
    {
        const file out(staging, O_WRONLY | O_CREAT | O_APPEND);
        if (!out.open()) return out.failure();
        if (out.size() > bytes && ::ftruncate(out.fd(), 0) != 0) return out.failure();
        while (out.size() < bytes) {
            const std::uint64_t from = out.size();
            const std::uint64_t to = std::min(bytes, from + sizer.bytes());
            bool written = true;
            call c;
            c.path = "/blobs/sha256/" + sha256;
            c.call_ms = options.part_ms;
            c.headers = {{"Range", fmt::format("bytes={}-{}", from, to - 1)}, {"If-Range", "\"" + sha256 + "\""}};
            std::uint64_t taken = 0;
            c.sink = [&](std::string_view piece) {
                const auto use =
                    piece.substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), to - from - taken)));
                taken += use.size();
                written = out.append(use);
                return written && use.size() == piece.size();
            };
            const auto reply = client.perform(c);
            if (!written) return out.failure();
            if (reply && (reply->status == 206 || (reply->status == 200 && from == 0)) && out.size() > from) {
                sizer.succeeded();
                waits.progressed();
                continue;
            }
            if (reply && reply->status >= 400 && !is_retried(reply->status)) return error_of(*reply);
            if (!reply && !is_retried(reply.error().code) && out.size() == from) return reply.error();
            sizer.failed();
            if (!waits.wait(reply ? reply->retry_after_s.value_or(0) : 0))
                return reply ? error_of(*reply) : reply.error();
        }
        if (::fsync(out.fd()) != 0) return out.failure();
    }
    storage::sha256 digest;
    const file in(staging, O_RDONLY);
    if (!in.open()) return in.failure();
    for (std::uint64_t at = 0; at < bytes;) {
        const auto piece = in.read(at, static_cast<std::size_t>(std::min<std::uint64_t>(1U << 20U, bytes - at)));
        if (!piece) return piece.error();
        digest.update(*piece);
        at += piece->size();
    }
    if (digest.hex() != sha256) {
        ::unlink(staging.c_str());
        return fail(errc::corrupt,
                    fmt::format("{}: the downloaded bytes have another digest; they are thrown away", path));
    }
    std::error_code failed;
    std::filesystem::rename(staging, path, failed);
    if (failed) return fail(errc::io_error, fmt::format("{}: {}", path, failed.message()));
    return {};
}

}  // namespace darlcore::client
