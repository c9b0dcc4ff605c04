// SPDX-License-Identifier: Apache-2.0
#include <iterator>

#include <fmt/format.h>

#include "backends/asio/ledger_service.hpp"
#include "darlcore/ledger/machine.hpp"

namespace darlcore::http {

namespace {

class text_writer {
public:
    explicit text_writer(std::string& out) : out_(out) {}
    void kind(std::string_view name, std::string_view type, std::string_view help) {
        fmt::format_to(std::back_inserter(out_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    }
    template <class Number>
    void line(std::string_view name, std::string_view labels, Number value) {
        if (labels.empty())
            fmt::format_to(std::back_inserter(out_), "{} {}\n", name, value);
        else
            fmt::format_to(std::back_inserter(out_), "{}{{{}}} {}\n", name, labels, value);
    }
    template <class Number>
    void gauge(std::string_view name, std::string_view help, Number value) {
        kind(name, "gauge", help);
        line(name, "", value);
    }
    template <class Number>
    void counter(std::string_view name, std::string_view help, Number value) {
        kind(name, "counter", help);
        line(name, "", value);
    }
    void histogram_of(std::string_view name, std::string_view help, const histogram& h) {
        kind(name, "histogram", help);
        std::uint64_t total = 0;
        for (std::size_t i = 0; i < h.buckets.size(); ++i) {
            total += h.buckets[i];
            const std::string bound = i < latency_bounds_s.size() ? fmt::format("{}", latency_bounds_s[i]) : "+Inf";
            line(fmt::format("{}_bucket", name), fmt::format("le=\"{}\"", bound), total);
        }
        line(fmt::format("{}_sum", name), "", h.sum_s);
        line(fmt::format("{}_count", name), "", h.count);
    }

private:
    std::string& out_;
};

void add_ledger(text_writer& w, const ledger::machine& m) {
    const auto counts = m.leases().counts();
    w.kind("darl_blocks", "gauge", "Blocks of the current epoch by state.");
    w.line("darl_blocks", "state=\"unassigned\"", counts.unassigned);
    w.line("darl_blocks", "state=\"leased\"", counts.leased);
    w.line("darl_blocks", "state=\"pledged\"", counts.pledged);
    w.line("darl_blocks", "state=\"committed\"", counts.committed);
    w.line("darl_blocks", "state=\"quarantined\"", counts.quarantined);
    w.gauge("darl_leases_open", "Open leases.", m.leases().open_leases());
    w.gauge("darl_epoch", "Current epoch, from 0.", m.epoch().count);
    w.gauge("darl_term", "Number of server starts.", m.term().count);
    w.gauge("darl_round_generation", "Index of the global model.", m.rounds().current().count);
    w.gauge("darl_round_pledged", "Contributions that wait for the merge.", m.rounds().durable().pledges.size());
}

void add_site_lines(text_writer& w, const ledger::machine& m, ledger_time now) {
    struct column {
        const char* name;
        const char* help;
        std::uint64_t lease::site_counters::*value;
    };
    static constexpr column columns[] = {
        {"darl_site_blocks_committed_total", "Blocks committed by site.", &lease::site_counters::committed},
        {"darl_site_blocks_lost_total", "Blocks returned by expiry or takeover.", &lease::site_counters::lost},
        {"darl_site_expiries_total", "Leases that expired.", &lease::site_counters::expiries},
        {"darl_site_blocks_stolen_total", "Blocks taken from this site by others.", &lease::site_counters::stolen_from},
        {"darl_site_rejected_total", "Contributions rejected for their content.", &lease::site_counters::rejected},
    };
    for (const column& c : columns) {
        w.kind(c.name, "counter", c.help);
        for (std::uint32_t i = 0; i < m.leases().num_sites(); ++i) {
            const auto view = m.leases().site(lease::site_number{i}, now);
            w.line(c.name, fmt::format("site=\"{}\"", view.id.name), view.counters.*c.value);
        }
    }
}

}  // namespace

std::string ledger_service::metrics_text() const {
    std::string out;
    text_writer w(out);
    w.kind("darl_http_requests_total", "counter", "Answers by route and status.");
    for (const auto& [key, n] : metrics_.answers)
        w.line("darl_http_requests_total", fmt::format("route=\"{}\",status=\"{}\"", key.first, key.second), n);
    w.kind("darl_refused_total", "counter", "Refusals by code.");
    for (const auto& [code, n] : metrics_.refusals) w.line("darl_refused_total", fmt::format("code=\"{}\"", code), n);
    w.histogram_of("darl_http_request_seconds", "Time from head to reply; long polls and blobs left out.",
                   metrics_.latency);
    if (server_ != nullptr) {
        const auto& c = server_->counters();
        w.gauge("darl_http_connections", "Open connections.", c.open);
        w.counter("darl_http_connections_refused_total", "Connections over a cap.", c.refused_connections);
        w.counter("darl_http_malformed_total", "Requests that were no HTTP.", c.malformed);
        w.counter("darl_http_bytes_in_total", "Bytes received.", c.bytes_in);
        w.counter("darl_http_bytes_out_total", "Bytes sent.", c.bytes_out);
    }
    add_ledger(w, core_.machine());
    add_site_lines(w, core_.machine(), core_.now());
    const auto f = core_.figures();
    w.counter("darl_journal_batches_total", "Group commits.", f.batches);
    w.counter("darl_journal_records_total", "Records made durable.", f.records);
    w.counter("darl_journal_bytes_total", "Journal bytes written.", f.bytes);
    w.counter("darl_journal_sync_seconds_total", "Time in fdatasync.", f.sync_s_total);
    w.gauge("darl_journal_sync_seconds_max", "Longest fdatasync.", f.sync_s_max);
    w.gauge("darl_journal_records_since_snapshot", "Records a restart would replay.", core_.records_since_snapshot());
    w.gauge("darl_disk_full", "1 while new acknowledgements are refused for lack of space.", core_.disk_full() ? 1 : 0);
    w.gauge("darl_degraded", "1 when the books contradict themselves.", core_.degraded().empty() ? 0 : 1);
    w.gauge("darl_ledger_lag_seconds", "Time that stalls kept out of ledger time.",
            static_cast<double>(core_.lag_ms()) / 1000.0);
    w.gauge("darl_polls_waiting", "Long polls held.", hub_.waiting());
    for (const extra_routes* more : extras_) more->add_metrics(out);
    return out;
}

}  // namespace darlcore::http
