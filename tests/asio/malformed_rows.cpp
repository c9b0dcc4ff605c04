// SPDX-License-Identifier: Apache-2.0
#include "tests/asio/malformed_rows.hpp"

namespace darlcore::http::testing {

namespace {

using rows = std::vector<malformed_row>;

std::string hex(int c) {
    static constexpr char digits[] = "0123456789abcdef";
    return {digits[(c >> 4) & 15], digits[c & 15]};
}

std::string with_line(const std::string& line) { return line + "\r\nHost: a\r\n\r\n"; }
std::string with_field(const std::string& field) {
    return "POST /acquire HTTP/1.1\r\nHost: a\r\n" + field + "\r\n\r\n";
}
std::string with_chunks(const std::string& body) {
    return "POST /acquire HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + body;
}

void add(rows& out, const std::string& name, const std::string& bytes, int status = 400) {
    out.push_back({name, bytes, status});
}

void request_lines(rows& out) {
    for (const char* line : {"",
                             " ",
                             "GET",
                             "GET ",
                             "GET /",
                             "GET / ",
                             "GET /  HTTP/1.1",
                             "GET  / HTTP/1.1",
                             " GET / HTTP/1.1",
                             "GET\t/ HTTP/1.1",
                             "GET /\tHTTP/1.1",
                             "GET / HTTP/1.1 ",
                             "GET / HTTP/1.1 x",
                             "G(T / HTTP/1.1",
                             "GE:T / HTTP/1.1",
                             "G\"T / HTTP/1.1",
                             "G@T / HTTP/1.1",
                             "/ HTTP/1.1",
                             "GET HTTP/1.1",
                             "GET / /x HTTP/1.1",
                             "GET a HTTP/1.1",
                             "GET * HTTP/1.1",
                             "GET ?a=b HTTP/1.1",
                             "GET ftp://h/ HTTP/1.1",
                             "GET http:// HTTP/1.1",
                             "GET http://u@h/ HTTP/1.1",
                             "GET http:///x HTTP/1.1",
                             "CONNECT h:443 HTTP/1.1",
                             "GET //user@h\\x HTTP/1.1",
                             "GET /a#b HTTP/1.1",
                             "GET /a\"b HTTP/1.1",
                             "GET /a<b HTTP/1.1",
                             "GET /a>b HTTP/1.1",
                             "GET /a\\b HTTP/1.1"})
        add(out, std::string("line '") + line + "'", with_line(line));
    for (const char* version :
         {"HTTP/0.9",  "HTTP/1.2", "HTTP/1.9",  "HTTP/2.0",   "HTTP/2",    "HTTP/3",    "HTTP/11",
          "HTTP/1",    "HTTP/1.",  "HTTP/.1",   "HTTP/1.1.1", "HTTP/-1.1", "HTTP/1.-1", "HTTP/01.1",
          "HTTP/1.01", "http/1.1", "Http/1.1",  "HTTP 1.1",   "HTTP/1,1",  "HTTPS/1.1", "HTTP/a.b",
          "HTTP/1.10", "ICY/1.1",  "HTTP/ 1.1", "/1.1",       "HTTP"})
        add(out, std::string("version '") + version + "'", with_line(std::string("GET / ") + version));
    for (const char* escape : {"%", "%1", "%g0", "%0g", "%00", "%%20", "% 1", "a%2", "%-1", "%+1"})
        add(out, std::string("escape '") + escape + "'", with_line(std::string("GET /") + escape + " HTTP/1.1"));
    add(out, "two blank lines before", "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    add(out, "target over 8 KiB", with_line("GET /" + std::string(8200, 'a') + " HTTP/1.1"), 414);
    add(out, "query over 8 KiB", with_line("GET /?" + std::string(8200, 'a') + " HTTP/1.1"), 414);
    add(out, "method over 8 KiB", with_line(std::string(8200, 'G') + " / HTTP/1.1"), 414);
    add(out, "endless first line", std::string(9000, 'x'), 414);
    add(out, "TLS hello", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11));
    add(out, "TLS hello, early line end", "\x16\x03\x01\r\n\r\n");
    add(out, "HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    add(out, "a response", "HTTP/1.1 200 OK\r\nHost: a\r\n\r\n");
}

void control_bytes(rows& out) {
    for (int c = 0; c <= 32; ++c) {
        if (c == '\r' || c == '\n') continue;
        const std::string byte(1, static_cast<char>(c));
        add(out, "byte 0x" + hex(c) + " in the method", with_line("G" + byte + "T / HTTP/1.1"));
        add(out, "byte 0x" + hex(c) + " in the target", with_line("GET /a" + byte + "b HTTP/1.1"));
        add(out, "byte 0x" + hex(c) + " in a field name", with_field("a" + byte + "b: c"));
        if (c != '\t' && c != ' ') add(out, "byte 0x" + hex(c) + " in a field value", with_field("a: b" + byte + "c"));
    }
    for (const int c : {127, 128, 160, 200, 255}) {
        const std::string byte(1, static_cast<char>(c));
        add(out, "byte 0x" + hex(c) + " in the method", with_line("G" + byte + "T / HTTP/1.1"));
        add(out, "byte 0x" + hex(c) + " in the target", with_line("GET /a" + byte + "b HTTP/1.1"));
        add(out, "byte 0x" + hex(c) + " in a field name", with_field("a" + byte + "b: c"));
    }
    add(out, "byte 0x7f in a field value", with_field("a: b\x7f"));
}

void line_ends(rows& out) {
    add(out, "bare LF after the request line", "GET / HTTP/1.1\nHost: a\r\n\r\n");
    add(out, "bare LF after a field", "GET / HTTP/1.1\r\nHost: a\n\r\n");
    add(out, "bare LF at the end", "GET / HTTP/1.1\r\nHost: a\r\n\n");
    add(out, "only LF", "GET / HTTP/1.1\nHost: a\n\n");
    add(out, "LF first", "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    add(out, "bare CR first", "\rGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    add(out, "bare CR in the request line", "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n");
    add(out, "bare CR in a value", with_field("a: b\rc"));
    add(out, "bare CR in a name", with_field("a\rb: c"));
    add(out, "CR CR LF", "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n");
    add(out, "LF CR", "GET / HTTP/1.1\n\rHost: a\r\n\r\n");
    add(out, "hidden field behind a bare LF", with_field("a: b\nContent-Length: 5"));
    add(out, "hidden field behind a bare CR", with_field("a: b\rContent-Length: 5"));
    add(out, "folded with a space", with_field("a: b\r\n c"));
    add(out, "folded with a tab", with_field("a: b\r\n\tc"));
    add(out, "folded Content-Length", with_field("Content-Length:\r\n 5"));
    add(out, "folded Host", "GET / HTTP/1.1\r\nHost:\r\n a\r\n\r\n");
    add(out, "first field begins with a blank", "GET / HTTP/1.1\r\n Host: a\r\n\r\n");
    add(out, "folded to nothing", with_field("a: b\r\n "));
}

void field_shapes(rows& out) {
    for (const char* f : {"a",     ": b",   " : b",   "a : b",  "a\t: b", "a(: b",           "a): b",
                          "a@: b", "a,: b", "a;: b",  "a\\: b", "a\": b", "a/: b",           "a[: b",
                          "a]: b", "a?: b", "a={: b", "{a}: b", "<a>: b", "no colon at all", "=: b"})
        add(out, std::string("field '") + f + "'", with_field(f));
    std::string many;
    for (int i = 0; i < 101; ++i) many += "a" + std::to_string(i) + ": b\r\n";
    add(out, "101 fields and Host", "GET / HTTP/1.1\r\nHost: a\r\n" + many + "\r\n", 431);
    add(out, "a value over 16 KiB", with_field("a: " + std::string(17000, 'b')), 431);
    add(out, "a name over 16 KiB", with_field(std::string(17000, 'b') + ": a"), 431);
    std::string sum;
    for (int i = 0; i < 20; ++i) sum += "a" + std::to_string(i) + ": " + std::string(1000, 'b') + "\r\n";
    add(out, "20 fields of 1 KB", "GET / HTTP/1.1\r\nHost: a\r\n" + sum + "\r\n", 431);
    add(out, "endless field", "GET / HTTP/1.1\r\nHost: a\r\nx: " + std::string(20000, 'b'), 431);
}

void hosts(rows& out) {
    add(out, "no Host", "GET / HTTP/1.1\r\n\r\n");
    add(out, "no Host but others", "GET / HTTP/1.1\r\nAccept: x\r\n\r\n");
    add(out, "no Host in 1.0", "GET / HTTP/1.0\r\n\r\n");
    add(out, "two Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    add(out, "two equal Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n");
    add(out, "two Hosts in two cases", "GET / HTTP/1.1\r\nHost: a\r\nHOST: a\r\n\r\n");
    add(out, "absolute form without Host", "GET http://a/ HTTP/1.1\r\n\r\n");
    for (const char* host : {"", " ", "a b", "a,b", "a/b", "a?b", "a#b", "u@a", "http://a", "a\\b", "a;b", "a|b", "a<b",
                             "a\"b", "a{b", "a=b"})
        add(out, std::string("Host '") + host + "'", std::string("GET / HTTP/1.1\r\nHost: ") + host + "\r\n\r\n");
    add(out, "Host over 255", "GET / HTTP/1.1\r\nHost: " + std::string(256, 'a') + "\r\n\r\n");
}

void lengths(rows& out) {
    for (const char* length : {"",
                               " ",
                               "-1",
                               "+1",
                               "1 1",
                               "1,1",
                               "1, 1",
                               "0x10",
                               "1a",
                               "a",
                               "1.0",
                               "1e3",
                               "1;",
                               "\"1\"",
                               "1_0",
                               "18446744073709551616",
                               "99999999999999999999",
                               "9223372036854775808999",
                               "--1",
                               "1-",
                               "0,1",
                               ",1",
                               "1,",
                               "one",
                               "NaN",
                               "1\t1"})
        add(out, std::string("Content-Length '") + length + "'", with_field(std::string("Content-Length: ") + length));
    add(out, "two equal lengths", with_field("Content-Length: 1\r\nContent-Length: 1") + "x");
    add(out, "two lengths", with_field("Content-Length: 1\r\nContent-Length: 2") + "xy");
    add(out, "two lengths in two cases", with_field("Content-Length: 1\r\ncontent-length: 1") + "x");
    add(out, "length and chunked", with_field("Content-Length: 5\r\nTransfer-Encoding: chunked") + "0\r\n\r\n");
    add(out, "chunked and length", with_field("Transfer-Encoding: chunked\r\nContent-Length: 5") + "0\r\n\r\n");
    add(out, "length 0 and chunked", with_field("Content-Length: 0\r\nTransfer-Encoding: chunked") + "0\r\n\r\n");
    for (const char* coding :
         {"",         " ",        "gzip",        "identity", "gzip, chunked", "chunked, gzip",     "chunked, chunked",
          "chunked,", ",chunked", "chunked;q=1", "xchunked", "chunkedx",      "\"chunked\"",       "chunked chunked",
          "compress", "deflate",  "x",           "\tgzip",   "chunked\t,",    "identity, chunked", "c hunked"})
        add(out, std::string("Transfer-Encoding '") + coding + "'",
            with_field(std::string("Transfer-Encoding: ") + coding) + "0\r\n\r\n");
    add(out, "two Transfer-Encodings",
        with_field("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked") + "0\r\n\r\n");
    add(out, "two Transfer-Encodings, one identity",
        with_field("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked") + "0\r\n\r\n");
    add(out, "Transfer-Encoding with a space before the colon",
        with_field("Transfer-Encoding : chunked") + "0\r\n\r\n");
    add(out, "chunked in 1.0", "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    for (const char* expect : {"100", "200-ok", "100-continue, x", "", "continue", "100-continued"})
        add(out, std::string("Expect '") + expect + "'", with_field(std::string("Expect: ") + expect), 417);
}

void chunks(rows& out) {
    for (const char* body : {"g\r\n",
                             "-1\r\n",
                             "+1\r\nx\r\n",
                             "0x1\r\nx\r\n",
                             " 1\r\nx\r\n",
                             "1 \r\nx\r\n",
                             "1\rx\r\n",
                             "\r\n",
                             "\r\nx",
                             "x\r\n",
                             "1;\r\nx\r\n0\r\n\r\n",
                             "1;=a\r\nx\r\n",
                             "1;a=\r\nx\r\n",
                             "1,a\r\nx\r\n",
                             "1;a=\"b\r\nx\r\n",
                             "1;a b\r\nx\r\n",
                             "10000000000000000\r\n",
                             "fffffffffffffffff\r\n",
                             "1\r\nxy\r\n0\r\n\r\n",
                             "1\r\nx\n0\r\n\r\n",
                             "1\r\nx0\r\n\r\n",
                             "2\r\nx\r\n0\r\n\r\n",
                             "1\r\nx\r0\r\n\r\n",
                             "0;\r\n\r\n",
                             "0\r\na\r\n\r\n",
                             "0\r\n: b\r\n\r\n",
                             "0\r\na b: c\r\n\r\n",
                             "0\r\na : c\r\n\r\n",
                             "1\r\nx\r\n\r\n",
                             "1\r\nx\r\ng\r\n",
                             ";a=b\r\n",
                             "0\r\na: b\x01\r\n\r\n"})
        add(out, std::string("chunks '") + body + "'", with_chunks(body));
    add(out, "chunk header over 4 KiB", with_chunks("1;" + std::string(5000, 'a')));
    add(out, "trailers over 4 KiB", with_chunks("0\r\na: " + std::string(5000, 'b')));
}

}  // namespace

std::vector<malformed_row> malformed_rows() {
    rows out;
    request_lines(out);
    control_bytes(out);
    line_ends(out);
    field_shapes(out);
    hosts(out);
    lengths(out);
    chunks(out);
    return out;
}

}  // namespace darlcore::http::testing
