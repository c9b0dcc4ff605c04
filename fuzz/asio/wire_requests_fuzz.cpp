// SPDX-License-Identifier: Apache-2.0
// JSON bodies through the readers of every route: they accept or name a field, and what they accept is within its
// bounds.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "adapters/formats/json.hpp"
#include "backends/asio/scan_text.hpp"
#include "backends/asio/wire_requests.hpp"

namespace {

using namespace darlcore;

template <class T>
void check(const result<T>& read) {
    if (!read && (read.error().code != errc::bad_request || read.error().context.empty())) std::abort();
}

void check_caller(const lease::caller& who) {
    if (!is_valid_name(who.site.name)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto body = json::parse({reinterpret_cast<const char*>(data), size});
    (void)http::parse_scan_text({reinterpret_cast<const char*>(data), size});
    if (!body) return 0;
    if (const auto r = wire::read_acquire(*body); r) {
        check_caller(r->who);
        if (r->want < 1 || r->max_spans < 1 || r->max_spans > wire::spans_max || r->request_id.size() > 64)
            std::abort();
        if (!std::isfinite(r->report.ttl_s)) std::abort();
    } else {
        check(r);
    }
    if (const auto r = wire::read_heartbeat(*body); r) {
        if (r->request.leases.size() > wire::map_entries_max || r->unreadable.size() > wire::map_entries_max)
            std::abort();
    } else {
        check(r);
    }
    if (const auto r = wire::read_contribute(*body); r) {
        if (r->leases.size() > wire::map_entries_max || r->id.text.empty() || r->id.text.size() > 128) std::abort();
        if (r->tokens > 0 && r->sha256.size() != 64) std::abort();
    } else {
        check(r);
    }
    check(wire::read_register(*body));
    check(wire::read_reserve(*body));
    check(wire::read_commit(*body));
    check(wire::read_release(*body));
    check(wire::read_advance(*body));
    check(wire::read_join(*body));
    check(wire::read_poll(*body));
    check(wire::read_decline(*body));
    check(wire::read_evaluation(*body));
    check(wire::read_leave(*body));
    check(wire::read_pause(*body));
    check(wire::read_announce(*body));
    return 0;
}
