// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fcntl.h>
#include <fmt/format.h>

#include "backends/asio/model_service.hpp"
#include "backends/asio/on_pool.hpp"
#include "backends/asio/wire_fields.hpp"
#include "backends/asio/wire_requests.hpp"

namespace darlcore::http {

namespace {

constexpr std::string_view uploads_path = "/blobs/uploads/";
constexpr std::string_view stored_path = "/blobs/sha256/";
constexpr std::size_t listed_max = 10'000;

bool is_hex_digest(std::string_view text) {
    return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_upload_id(std::string_view text) {
    constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    return !text.empty() && text.size() <= 64 && text.find_first_not_of(allowed) == std::string_view::npos;
}

std::string header(const request_head& head, std::string_view name) {
    const std::string* v = head.find(name);
    return v == nullptr ? std::string() : *v;
}

/// The checksum of a part: nothing when not sent; an empty text when it is not `sha256 HEX`.
std::optional<std::string> checksum_of(const request_head& head) {
    const std::string* v = head.find("upload-checksum");
    if (v == nullptr) return std::nullopt;
    const std::string hex = v->starts_with("sha256 ") ? v->substr(7) : std::string();
    return is_hex_digest(hex) ? hex : std::string();
}

reply closing(reply r) {
    r.close = true;
    return r;
}

}  // namespace

std::optional<extra_routes::found> model_service::find(const request_head& head) const {
    const std::string_view path = head.path;
    const bool read = head.method == "GET" || head.method == "HEAD";
    if (path == "/blobs" && head.method == "POST") return found{"POST /blobs", scope::blob, true};
    if (path == "/blobs" && read) return found{"GET /blobs", scope::admin, false};
    if (path.starts_with(uploads_path)) {
        if (read) return found{"HEAD /blobs/uploads", scope::blob, false};
        if (head.method == "PATCH") return found{"PATCH /blobs/uploads", scope::blob, true};
        if (head.method == "DELETE") return found{"DELETE /blobs/uploads", scope::blob, true};
    }
    if (path.starts_with(stored_path)) {
        if (read) return found{"GET /blobs/sha256", scope::blob, false};
        if (head.method == "PUT") return found{"PUT /blobs/sha256", scope::blob, true};
    }
    return std::nullopt;
}

asio::awaitable<reply> model_service::run(api_call& call) {
    const request_head& head = call.x.head();
    const bool read = head.method == "GET" || head.method == "HEAD";
    // no two co_awaits in one conditional: g++ 12 destroys temporaries of both branches
    if (head.path == "/blobs" && read) co_return co_await list(call);
    if (head.path == "/blobs") co_return co_await announce(call);
    if (head.path.starts_with(uploads_path)) {
        call.tail = head.path.substr(uploads_path.size());
        if (!is_upload_id(call.tail))
            co_return closing(error_reply(errc::gone, "there is no such upload; announce it with POST /blobs"));
        if (read) co_return co_await upload_status(call);
        if (head.method == "PATCH") co_return co_await patch(call);
        co_return co_await abandon(call);
    }
    call.tail = head.path.substr(stored_path.size());
    if (!is_hex_digest(call.tail))
        co_return closing(error_reply(errc::bad_request, "a blob is named by the 64 hex digits of its SHA-256"));
    if (read) co_return co_await download(call);
    co_return co_await put(call);
}

reply model_service::failed(const error& why) {
    std::int64_t wait_ms = 0;
    const int status = wire::http_status(why.code, true);
    if (status == 503) wait_ms = 5'000;
    if (status == 507 || status == 429) wait_ms = 60'000;
    if (why.code == errc::io_error) report("blob_io_error", why);
    // paths and system texts stay here
    const bool ours = why.code == errc::io_error || status == 500;
    return error_reply(ours ? errc::no_room : why.code,
                       ours ? std::string("the server could not store this; try again") : why.context,
                       ours ? 60'000 : wait_ms, true);
}

reply model_service::stored_reply(const std::string& scan) {
    json::value body = json::make_object({{"stored", true}});
    if (const auto parsed = json::parse(scan)) body.set("scan", *parsed);
    return json_reply(body);
}

namespace {

reply announced_reply(const storage::announced& a, std::uint64_t part_bytes_max) {
    reply r = json_reply(json::make_object({{"upload", a.upload.id},
                                            {"offset", wire::count(a.upload.offset)},
                                            {"part_bytes_max", part_bytes_max},
                                            {"expires_s", wire::seconds(a.upload.expires_in_ms)}}),
                         a.upload.offset == 0 ? 201 : 200);
    r.headers.push_back({"Location", "blobs/uploads/" + a.upload.id});
    return r;
}

storage::blob_facts facts_of(const wire::announce_message& m) {
    storage::blob_facts f;
    f.sha256 = m.sha256;
    f.bytes = m.bytes;
    f.purpose =
        m.request.purpose == ledger::blob_purpose::init ? storage::blob_purpose::init : storage::blob_purpose::delta;
    f.codec = m.codec;
    f.generation = m.request.base.count;
    f.site = m.request.who.site.name;
    f.incarnation = to_text(m.request.who.incarnation);
    return f;
}

}  // namespace

asio::awaitable<reply> model_service::announce(api_call& call) {
    const std::string text = co_await read_body(call.x, service_.options().json_bytes_max);
    if (call.x.wrong()) co_return reply{};
    const auto body = json::parse(text);
    if (!body) co_return error_reply(errc::bad_request, "the body is not one JSON document");
    const auto in = wire::read_announce(*body);
    if (!in) co_return error_reply(in.error().code, in.error().context);
    if (auto other = service_.check_site(call, in->request.who.site.name)) co_return std::move(*other);
    const auto allowed = core_.apply(in->request);
    if (!allowed.ok()) {
        reply told = service_.refused(allowed.refused(), true);
        co_return co_await service_.when_settled(std::move(told));
    }
    const storage::blob_facts facts = facts_of(*in);
    const storage::blob_standing now = standing(in->codec);
    const auto work = [&] { return blobs_->announce(facts, now, core_.now().ms); };
    const auto got = co_await on_pool(bulk_, work);
    if (!got) co_return failed(got.error());
    if (!got->stored) {
        reply told = announced_reply(*got, service_.options().part_bytes_max);
        co_return co_await service_.when_settled(std::move(told));
    }
    stored(in->sha256);
    {
        reply told = stored_reply(got->scan);
        co_return co_await service_.when_settled(std::move(told));
    }
}

model_service::uploader model_service::uploader_of(const api_call& call) {
    uploader u;
    const request_head& head = call.x.head();
    const std::string site = header(head, "x-darl-cluster");
    const auto incarnation = parse_incarnation(header(head, "x-darl-incarnation"));
    if (!is_valid_name(site) || !incarnation) {
        u.refused = closing(error_reply(errc::bad_request, "send X-DARL-Cluster and X-DARL-Incarnation with a part"));
        return u;
    }
    u.who = {{site}, *incarnation};
    if (auto other = service_.check_site(call, site)) u.refused = closing(std::move(*other));
    return u;
}

asio::awaitable<reply> model_service::upload_status(api_call& call) {
    const auto got = blobs_->status(call.tail, core_.now().ms);
    if (!got) co_return failed(got.error());
    reply r;
    r.headers.push_back({"Upload-Offset", std::to_string(got->offset)});
    r.headers.push_back({"Upload-Length", std::to_string(got->length)});
    co_return r;
}

asio::awaitable<result<storage::part_accepted>> model_service::take_part(api_call& call, storage::part_writer& writer) {
    for (;;) {
        const std::string_view piece = co_await call.x.next_piece(service_.options().part_bytes_max);
        if (call.x.wrong()) co_return fail(errc::cancelled);
        if (piece.empty()) break;
        bytes_up_ += piece.size();
        const auto write = [&] { return writer.write(piece); };
        if (const auto written = co_await on_pool(bulk_, write); !written) co_return written.error();
    }
    const auto finish = [&] { return writer.finish(core_.now().ms); };
    co_return co_await on_pool(bulk_, finish);
}

asio::awaitable<reply> model_service::patch(api_call& call) {
    const request_head& head = call.x.head();
    uploader u = uploader_of(call);
    if (u.refused) co_return std::move(*u.refused);
    const auto offset = parse_decimal(header(head, "upload-offset"));
    const auto checksum = checksum_of(head);
    if (!offset || !head.content_length || (checksum && checksum->empty()))
        co_return closing(error_reply(
            errc::bad_request, "a part needs Upload-Offset and Content-Length; Upload-Checksum is 'sha256 HEX'"));
    if (*head.content_length > service_.options().part_bytes_max)
        co_return closing(error_reply(errc::too_large, "a part is at most 16 MiB; send several"));
    const auto before = blobs_->status(call.tail, core_.now().ms);
    const std::uint64_t length = before ? std::max<std::uint64_t>(1, before->length) : 1;
    const auto percent = static_cast<std::uint32_t>(std::min<std::uint64_t>(100, *offset / (length / 100 + 1)));
    const auto alive = core_.apply(ledger::upload_progress{u.who, percent});
    if (!alive.ok()) co_return closing(service_.refused(alive.refused(), true));
    const auto begin = [&] {
        return blobs_->begin_part(call.tail, u.who.site.name, *offset, *head.content_length, checksum, core_.now().ms);
    };
    auto writer = co_await on_pool(bulk_, begin);
    if (!writer) {
        reply r = closing(failed(writer.error()));
        const auto where = blobs_->status(call.tail, core_.now().ms);
        if (where && r.status == 409) r.headers.push_back({"Upload-Offset", std::to_string(where->offset)});
        co_return r;
    }
    const auto taken = co_await take_part(call, *writer);
    if (call.x.wrong()) co_return reply{};
    if (!taken) co_return failed(taken.error());
    if (taken->stored) {
        for (const storage::blob_facts& f :
             blobs_->list())  // its upload is gone by now; equal findings of this site are it
            if (f.site == u.who.site.name && f.purpose != storage::blob_purpose::wire && f.scan == taken->scan)
                stored(f.sha256);
        {
            reply told = stored_reply(taken->scan);
            co_return co_await service_.when_settled(std::move(told));
        }
    }
    reply r;
    r.status = 204;
    r.headers.push_back({"Upload-Offset", std::to_string(taken->offset)});
    co_return r;
}

asio::awaitable<reply> model_service::abandon(api_call& call) {
    uploader u = uploader_of(call);
    if (u.refused) co_return std::move(*u.refused);
    const auto work = [&] { return blobs_->abandon(call.tail, u.who.site.name); };
    if (const auto gone = co_await on_pool(bulk_, work); !gone) co_return failed(gone.error());
    reply r;
    r.status = 204;
    co_return r;
}

asio::awaitable<reply> model_service::put(api_call& call) {
    const request_head& head = call.x.head();
    uploader u = uploader_of(call);
    if (u.refused) co_return std::move(*u.refused);
    wire::announce_message m;
    m.request.who = u.who;
    m.request.purpose =
        header(head, "x-darl-purpose") == "init" ? ledger::blob_purpose::init : ledger::blob_purpose::delta;
    const auto base = parse_decimal(header(head, "x-darl-base-generation"));
    if (!base || !head.content_length) {
        co_return closing(error_reply(errc::bad_request,
                                      "send Content-Length, X-DARL-Purpose, X-DARL-Codec and X-DARL-Base-Generation"));
    }
    m.request.base = generation{*base};
    m.codec = header(head, "x-darl-codec").substr(0, 32);
    m.sha256 = call.tail;
    m.bytes = *head.content_length;
    const auto allowed = core_.apply(m.request);
    if (!allowed.ok()) {
        reply told = service_.refused(allowed.refused(), true);
        co_return closing(co_await service_.when_settled(std::move(told)));
    }
    const std::string body = co_await read_body(call.x, service_.options().part_bytes_max);
    if (call.x.wrong()) co_return reply{};
    bytes_up_ += body.size();
    const storage::blob_facts facts = facts_of(m);
    const storage::blob_standing now = standing(m.codec);
    const auto work = [&] { return blobs_->put(facts, body, now, core_.now().ms); };
    const auto got = co_await on_pool(bulk_, work);
    if (!got) co_return failed(got.error());
    stored(m.sha256);
    {
        reply told = stored_reply(got->scan);
        co_return co_await service_.when_settled(std::move(told));
    }
}

asio::awaitable<reply> model_service::download(api_call& call) {
    const request_head& head = call.x.head();
    const std::string client = call.who.site.empty() ? call.x.peer().address : call.who.site;
    const auto work = [&]() -> result<int> {
        const auto opened = blobs_->fetch(call.tail, client, core_.now().ms);
        if (!opened) return opened.error();
        const int fd = ::open(blobs_->path_of(call.tail).c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) return fail(errc::blob_missing, "this blob is not here any more; poll for the current generation");
        return fd;
    };
    const auto fd = co_await on_pool(bulk_, work);
    if (!fd) {
        reply r = failed(fd.error());
        if (fd.error().code == errc::blob_missing) r.status = 404;
        co_return r;
    }
    const auto file = std::make_shared<open_file>(*fd);
    const auto facts = blobs_->find(call.tail);
    const std::uint64_t size = facts ? facts->bytes : 0;
    const std::string etag = "\"" + call.tail + "\"";
    reply r;
    r.content_type = "application/octet-stream";
    r.headers.push_back({"ETag", etag});
    r.headers.push_back({"Accept-Ranges", "bytes"});
    const std::string* range = head.find("range");
    const std::string* condition = head.find("if-range");
    byte_range part{0, size};
    if (range != nullptr && (condition == nullptr || *condition == etag)) {
        const auto asked = parse_range(*range, size, part);
        if (asked == range_answer::unsatisfiable) {
            r = error_reply(errc::bad_request, "ask for one range inside the blob");
            r.status = 416;
            r.headers.push_back({"Content-Range", fmt::format("bytes */{}", size)});
            co_return r;
        }
        if (asked == range_answer::part) {
            r.status = 206;
            r.headers.push_back({"Content-Range", fmt::format("bytes {}-{}/{}", part.first, part.end - 1, size)});
        }
    }
    r.file = file_region{file, part.first, part.end - part.first};
    if (head.method != "HEAD") bytes_down_ += part.end - part.first;
    co_return r;
}

namespace {

json::value blob_json(const storage::blob_facts& f) {
    return json::make_object(
        {{"sha256", f.sha256},
         {"bytes", wire::count(f.bytes)},
         {"purpose", storage::word(f.purpose)},
         {"codec", f.codec},
         {"generation", wire::count(f.generation)},
         {"site", f.site},
         {"state", f.purpose == storage::blob_purpose::wire || !f.scan.empty() ? "stored" : "staging"}});
}

}  // namespace

asio::awaitable<reply> model_service::list(api_call&) {
    json::value all = json::array{};
    for (const storage::blob_facts& f : blobs_->list()) {
        if (all.size() == listed_max) break;
        all.push_back(blob_json(f));
    }
    json::value body;
    body.set("blobs", std::move(all));
    co_return json_reply(body);
}

}  // namespace darlcore::http
