// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/reply_head.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/serializer.hpp>

#include "adapters/formats/json.hpp"
#include "darlcore/assert.hpp"

namespace darlcore::http {

namespace beast_http = boost::beast::http;

namespace {

bool clean(std::string_view text) {
    return text.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos;
}

boost::beast::string_view beast_view(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::string reply_head_text(const reply& r, int minor_version, bool keep_alive, std::string_view date) {
    beast_http::response<beast_http::empty_body> message;
    message.version(10U + static_cast<unsigned>(minor_version));
    message.result(static_cast<unsigned>(r.status));
    message.reason(beast_view(reason_phrase(r.status)));
    if (!date.empty()) message.set(beast_http::field::date, beast_view(date));
    message.insert("X-DARL-Protocol", "2");  // tells our clients that no proxy answered
    if (r.status != 204 && r.status != 100) {
        if (!r.content_type.empty()) message.set(beast_http::field::content_type, beast_view(r.content_type));
        if (r.pieces) {
            if (minor_version == 1) message.set(beast_http::field::transfer_encoding, "chunked");
        } else {
            message.content_length(r.file ? r.file->length : r.body.size());
        }
    }
    if (!keep_alive)
        message.set(beast_http::field::connection, "close");
    else if (minor_version == 0)
        message.set(beast_http::field::connection, "keep-alive");
    for (const field& f : r.headers) {
        DARLCORE_ASSERT(clean(f.name) && clean(f.value));
        message.insert(beast_view(f.name), beast_view(f.value));
    }
    beast_http::serializer<false, beast_http::empty_body> out(message);
    out.split(true);
    std::string text;
    boost::beast::error_code ec;
    out.next(ec, [&text](boost::beast::error_code&, const auto& buffers) {
        for (auto it = boost::asio::buffer_sequence_begin(buffers); it != boost::asio::buffer_sequence_end(buffers);
             ++it) {
            const boost::asio::const_buffer piece(*it);
            text.append(static_cast<const char*>(piece.data()), piece.size());
        }
    });
    DARLCORE_ASSERT(!ec);
    return text;
}

reply refusal_reply(const refusal& r) {
    reply out;
    out.status = r.status;
    out.body = json::dump(json::make_object({{"error", r.sentence}, {"code", r.code}}));
    out.close = true;
    return out;
}

}  // namespace darlcore::http
