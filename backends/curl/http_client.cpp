// SPDX-License-Identifier: Apache-2.0
#include "backends/curl/http_client.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include <curl/curl.h>
#include <fmt/format.h>

namespace darlcore::client {

namespace {

constexpr long low_speed_bytes = 1024;
constexpr long low_speed_s = 30;
constexpr std::size_t header_bytes_max = std::size_t{64} << 10U;

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return out;
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r' || text.back() == '\n'))
        text.remove_suffix(1);
    return text;
}

struct server_url {
    bool tls = false;
    std::string host;
};

std::optional<server_url> split_url(std::string_view url) {
    server_url out;
    if (url.starts_with("https://"))
        out.tls = true;
    else if (!url.starts_with("http://"))
        return std::nullopt;
    url.remove_prefix(out.tls ? 8 : 7);
    url = url.substr(0, url.find_first_of("/?#"));
    if (url.find('@') != std::string_view::npos) return std::nullopt;  // secrets do not belong into URLs
    if (url.starts_with('[')) {
        const std::size_t close = url.find(']');
        if (close == std::string_view::npos) return std::nullopt;
        out.host = std::string(url.substr(1, close - 1));
    } else {
        out.host = std::string(url.substr(0, url.find(':')));
    }
    if (out.host.empty()) return std::nullopt;
    return out;
}

bool is_loopback(std::string_view host) {
    if (host == "localhost" || host == "::1") return true;
    return host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos;
}

void initialise_once() {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

}  // namespace

result<proxy_choice> parse_proxy(std::string_view text) {
    proxy_choice out;
    if (text == "none") return out;
    if (text == "env") {
        out.use = proxy_choice::kind::environment;
        return out;
    }
    if (text.starts_with("http://") || text.starts_with("https://")) {
        out.use = proxy_choice::kind::url;
        out.url = std::string(text);
        return out;
    }
    return fail(errc::invalid_argument, "a proxy is 'env', 'none' or a URL such as http://proxy.example:3128");
}

std::string proxy_for(std::string_view server, const proxy_choice& choice,
                      const std::function<std::string(const char*)>& environment) {
    const auto url = split_url(server);
    if (!url || is_loopback(url->host)) return {};
    switch (choice.use) {
        case proxy_choice::kind::none:
            return {};
        case proxy_choice::kind::url:
            return choice.url;
        case proxy_choice::kind::environment:
            break;
    }
    return environment(url->tls ? "https_proxy" : "http_proxy");
}

const std::string* answer::header(std::string_view lower_case_name) const {
    for (const auto& [name, value] : headers)
        if (name == lower_case_name) return &value;
    return nullptr;
}

class http_client::implementation {
public:
    explicit implementation(client_options o) : options(std::move(o)) {
        initialise_once();
        const auto variable = [](const char* name) {
            const char* text = std::getenv(name);
            return std::string(text == nullptr ? "" : text);
        };
        proxy = proxy_for(options.base_url, options.proxy, variable);
        if (options.proxy.use == proxy_choice::kind::environment) no_proxy = variable("no_proxy");
    }
    ~implementation() { reset(); }
    implementation(const implementation&) = delete;
    implementation& operator=(const implementation&) = delete;

    result<answer> perform(const call& c);
    void reset() {
        if (handle != nullptr) curl_easy_cleanup(handle);
        handle = nullptr;
    }

    client_options options;
    std::string proxy;
    std::string no_proxy;
    CURL* handle = nullptr;
    std::atomic<bool> cancelled{false};

private:
    struct running {
        implementation* self;
        const call* request;
        answer out;
        std::size_t header_bytes = 0;
        bool too_large = false;
        bool sink_ended = false;
    };
    static std::size_t on_header(char* data, std::size_t size, std::size_t n, void* user);
    static std::size_t on_body(char* data, std::size_t size, std::size_t n, void* user);
    static int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t);

    void set_constant_options();
    void set_call_options(const call& c, curl_slist* headers, running& state, char* error_text);
    curl_slist* header_list(const call& c) const;
    error failure_of(CURLcode code, const running& state, std::string_view text);
};

std::size_t http_client::implementation::on_header(char* data, std::size_t size, std::size_t n, void* user) {
    auto& state = *static_cast<running*>(user);
    const std::string_view line = trimmed({data, size * n});
    state.header_bytes += size * n;
    if (state.header_bytes > header_bytes_max) return 0;
    if (line.starts_with("HTTP/")) {  // a new head (after 100 Continue): the former one does not count
        state.out.headers.clear();
        return size * n;
    }
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos)
        state.out.headers.emplace_back(lower(line.substr(0, colon)), std::string(trimmed(line.substr(colon + 1))));
    return size * n;
}

std::size_t http_client::implementation::on_body(char* data, std::size_t size, std::size_t n, void* user) {
    auto& state = *static_cast<running*>(user);
    const std::string_view piece(data, size * n);
    long status = 0;
    curl_easy_getinfo(state.self->handle, CURLINFO_RESPONSE_CODE, &status);
    if (state.request->sink && status >= 200 && status < 300) {
        if (!state.request->sink(piece)) {
            state.sink_ended = true;
            return 0;
        }
        return piece.size();
    }
    if (state.out.body.size() + piece.size() > state.self->options.answer_bytes_max) {
        state.too_large = true;
        return 0;
    }
    state.out.body.append(piece);
    return piece.size();
}

int http_client::implementation::on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<running*>(user)->self->cancelled.load() ? 1 : 0;
}

void http_client::implementation::set_constant_options() {
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(handle, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(handle, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_ms));
    curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, low_speed_bytes);
    curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, low_speed_s);
    curl_easy_setopt(handle, CURLOPT_UPLOAD_BUFFERSIZE, 512L * 1024);
    curl_easy_setopt(handle, CURLOPT_BUFFERSIZE, 256L * 1024);
    curl_easy_setopt(handle, CURLOPT_PROXY, proxy.c_str());  // empty: the environment is not looked at
    curl_easy_setopt(handle, CURLOPT_NOPROXY, no_proxy.c_str());
    if (!options.proxy.user_password.empty())
        curl_easy_setopt(handle, CURLOPT_PROXYUSERPWD, options.proxy.user_password.c_str());
    curl_easy_setopt(handle, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
    if (!options.ca_file.empty()) curl_easy_setopt(handle, CURLOPT_CAINFO, options.ca_file.c_str());
    if (!options.client_certificate_file.empty())
        curl_easy_setopt(handle, CURLOPT_SSLCERT, options.client_certificate_file.c_str());
    if (!options.client_key_file.empty()) curl_easy_setopt(handle, CURLOPT_SSLKEY, options.client_key_file.c_str());
}

curl_slist* http_client::implementation::header_list(const call& c) const {
    curl_slist* list = nullptr;
    const auto add = [&list](const std::string& line) { list = curl_slist_append(list, line.c_str()); };
    add("Expect:");
    const bool has_accept =
        std::any_of(c.headers.begin(), c.headers.end(), [](const auto& h) { return h.first == "Accept"; });
    if (!has_accept) add("Accept: application/json");
    if (!options.token.empty()) add("X-DARL-Token: " + options.token);
    if (!c.body.empty()) add("Content-Type: " + c.content_type);
    for (const auto& [name, value] : c.headers) add(name + (value.empty() ? ";" : ": " + value));
    return list;
}

void http_client::implementation::set_call_options(const call& c, curl_slist* headers, running& state,
                                                   char* error_text) {
    const std::string url = options.base_url + c.path;
    curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(c.call_ms > 0 ? c.call_ms : options.call_ms));
    curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, error_text);
    curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, &on_header);
    curl_easy_setopt(handle, CURLOPT_HEADERDATA, &state);
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &on_body);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, &state);
    curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, &on_progress);
    curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &state);
    curl_easy_setopt(handle, CURLOPT_NOBODY, c.method == "HEAD" ? 1L : 0L);
    if (c.method == "GET") {
        curl_easy_setopt(handle, CURLOPT_HTTPGET, 1L);
    } else if (c.method != "HEAD") {
        curl_easy_setopt(handle, CURLOPT_POST, 1L);
        curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(c.body.size()));
        curl_easy_setopt(handle, CURLOPT_POSTFIELDS, c.body.data() == nullptr ? "" : c.body.data());
    }
    const bool usual = c.method == "GET" || c.method == "HEAD" || c.method == "POST";
    curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, usual ? nullptr : c.method.c_str());
}

error http_client::implementation::failure_of(CURLcode code, const running& state, std::string_view text) {
    if (cancelled.load() || state.sink_ended) return fail(errc::cancelled, "the call was cancelled");
    if (state.too_large) return fail(errc::too_large, "the answer is larger than this call accepts");
    long connect_status = 0;
    curl_easy_getinfo(handle, CURLINFO_HTTP_CONNECTCODE, &connect_status);
    if (connect_status >= 300)
        return fail(errc::unreachable,
                    fmt::format("proxy: it answered {} to CONNECT; check the proxy setting", connect_status));
    if (code == CURLE_COULDNT_RESOLVE_PROXY) return fail(errc::unreachable, fmt::format("proxy: {}", text));
    if (code == CURLE_OPERATION_TIMEDOUT) return fail(errc::timeout, fmt::format("{}: {}", options.base_url, text));
    const std::string_view through = proxy.empty() ? "" : " (through the proxy)";
    return fail(errc::unreachable, fmt::format("{}{}: {}", options.base_url, through, text));
}

result<answer> http_client::implementation::perform(const call& c) {
    if (cancelled.load()) return fail(errc::cancelled, "the client was cancelled");
    if (handle == nullptr) {
        handle = curl_easy_init();
        if (handle == nullptr) return fail(errc::out_of_memory, "no memory for an HTTP call");
        set_constant_options();
    }
    running state{this, &c, {}, 0, false, false};
    char error_text[CURL_ERROR_SIZE] = "";
    curl_slist* const headers = header_list(c);
    set_call_options(c, headers, state, error_text);
    const CURLcode code = curl_easy_perform(handle);
    curl_slist_free_all(headers);
    if (code != CURLE_OK) {
        error failure = failure_of(code, state, error_text[0] != '\0' ? error_text : curl_easy_strerror(code));
        reset();  // a fresh connection and a fresh name look-up for the next try
        return failure;
    }
    curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, nullptr);
    long status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(handle, CURLINFO_TOTAL_TIME, &state.out.seconds);
    curl_off_t wait_s = 0;
    curl_easy_getinfo(handle, CURLINFO_RETRY_AFTER, &wait_s);
    if (wait_s > 0) state.out.retry_after_s = static_cast<double>(wait_s);
    state.out.status = static_cast<int>(status);
    state.out.from_darl = state.out.header("x-darl-protocol") != nullptr;
    return std::move(state.out);
}

http_client::http_client(std::unique_ptr<implementation> impl) : impl_(std::move(impl)) {}
http_client::http_client(http_client&&) noexcept = default;
http_client& http_client::operator=(http_client&&) noexcept = default;
http_client::~http_client() = default;

result<http_client> http_client::make(client_options options) {
    while (options.base_url.ends_with('/')) options.base_url.pop_back();
    const auto url = split_url(options.base_url);
    if (!url)
        return fail(errc::invalid_argument,
                    "the server URL must be http://HOST:PORT or https://HOST:PORT, without a user part");
    if (!options.token.empty() && !url->tls && !is_loopback(url->host) && !options.insecure) {
        return fail(errc::token,
                    fmt::format("the token would go over plain HTTP to {}; use https, an SSH tunnel to loopback, or "
                                "--insecure on a trusted network",
                                url->host));
    }
    for (const char c : options.token)
        if (c <= ' ' || c == 127) return fail(errc::invalid_argument, "the token has a blank or control character");
    return http_client(std::make_unique<implementation>(std::move(options)));
}

result<answer> http_client::perform(const call& c) { return impl_->perform(c); }
void http_client::cancel() { impl_->cancelled = true; }
bool http_client::cancelled() const { return impl_->cancelled; }
const client_options& http_client::options() const { return impl_->options; }

}  // namespace darlcore::client
