// SPDX-License-Identifier: Apache-2.0
#include "backends/curl/site_driver.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "backends/curl/json_call.hpp"
#include "backends/curl/site_protocol.hpp"
#include "backends/curl/unsent_note.hpp"

namespace darlcore::client {
namespace {

using steady = std::chrono::steady_clock;

std::int64_t now_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(steady::now().time_since_epoch()).count();
}

/// Values handed from one thread to another; `close` lets the receiver go.
template <class T>
class mailbox {
public:
    void put(T value) {
        {
            const std::lock_guard lock(mutex_);
            if (closed_) return;
            values_.push_back(std::move(value));
        }
        ready_.notify_one();
    }
    void close() {
        {
            const std::lock_guard lock(mutex_);
            closed_ = true;
        }
        ready_.notify_all();
    }
    /// The next value; nothing at the time limit or after `close`.
    std::optional<T> take(std::chrono::milliseconds at_most) {
        std::unique_lock lock(mutex_);
        ready_.wait_for(lock, at_most, [&] { return closed_ || !values_.empty(); });
        if (closed_ || values_.empty()) return std::nullopt;
        T value = std::move(values_.front());
        values_.pop_front();
        return value;
    }
    [[nodiscard]] bool closed() {
        const std::lock_guard lock(mutex_);
        return closed_;
    }

private:
    std::mutex mutex_;
    std::condition_variable ready_;
    std::deque<T> values_;
    bool closed_ = false;
};

site::failure failure_of(const error& e) {
    const bool transport = e.code == errc::cancelled || e.code == errc::parse_error;
    return {transport ? errc::unreachable : e.code, e.context, 0, {}};
}

site::failure failure_of(const json_answer& a) {
    const error e = a.as_error();
    site::failure out{e.code, e.context, static_cast<std::int64_t>(a.retry_after_s.value_or(0) * 1000.0), {}};
    if (const auto* detail = a.body.find("detail"))
        if (const auto* who = detail->find("incarnation"); who != nullptr && who->as_string() != nullptr)
            out.replaced = parse_incarnation(*who->as_string()).value_or(incarnation{});
    return out;
}

class driver {
public:
    driver(site::session_settings settings, site_trainer& trainer, const driver_options& options)
        : who_(settings.hello.who), session_(std::move(settings)), trainer_(trainer), options_(options) {}

    result<int> run() {
        std::error_code failed;
        std::filesystem::create_directories(options_.work_dir, failed);
        if (failed) return fail(errc::io_error, fmt::format("{}: {}", options_.work_dir, failed.message()));
        for (auto* client : {&calls_, &bulk_, &beats_}) {
            auto made = http_client::make(options_.server);
            if (!made) return made.error();
            client->emplace(*std::move(made));
        }
        auto unsent = read_unsent(options_.work_dir);
        if (!unsent) return unsent.error();
        trainer_.start([this](site::event_t e) { events_.put(std::move(e)); });
        std::thread call_thread([this] { serve_calls(); });
        std::thread bulk_thread([this] { serve_bulk(); });
        std::thread beat_thread([this] { serve_beats(); });
        const int code = loop(*std::move(unsent));
        events_.close();
        call_box_.close();
        bulk_box_.close();
        ended_.close();
        beat_pause_.close();
        {
            const std::lock_guard lock(clients_mutex_);
            for (auto* client : {&calls_, &bulk_, &beats_}) (*client)->cancel();
        }
        call_thread.join();
        bulk_thread.join();
        beat_thread.join();
        trainer_.stop();
        return code;
    }

private:
    template <class F>
    auto with_session(F&& f) {
        const std::lock_guard lock(session_mutex_);
        return f(session_);
    }

    int loop(std::optional<site::unsent_contribution> unsent) {
        dispatch(with_session([&](site::session& s) { return s.start(now_ms(), std::move(unsent)); }));
        bool told = false;
        while (!exit_code_) {
            const auto event = events_.take(std::chrono::milliseconds(50));
            if (event) note_before(*event);
            dispatch(with_session([&](site::session& s) {
                return s.on(event ? *event : site::event_t(site::event::timer{}), now_ms());
            }));
            if (!told && options_.stop != nullptr && options_.stop->load()) {
                told = true;
                dispatch(with_session([&](site::session& s) {
                    return s.on(site::event::stop_requested{"a signal asked to stop"}, now_ms());
                }));
                const std::lock_guard lock(clients_mutex_);
                if (polling_.load()) (*calls_).cancel();
            }
        }
        return *exit_code_;
    }

    // A finished phase is noted durably, with its claims, before anything of it is sent.
    void note_before(const site::event_t& e) {
        const auto* finished = std::get_if<site::event::phase_finished>(&e);
        if (finished == nullptr) return;
        site::unsent_contribution note{finished->result, {}, {}};
        with_session([&](site::session& s) {
            note.base = s.base();
            note.claims = s.claims_of(finished->result.groups);
        });
        if (auto written = write_unsent(options_.work_dir, note); !written) log(written.error().context);
    }

    void dispatch(std::vector<site::action_t> actions) {
        for (auto& a : actions) std::visit([&](auto& one) { act(one); }, a);
    }
    void act(site::action::call& a) {
        polling_.store(std::holds_alternative<ledger::poll_request>(a.what));
        call_box_.put(std::move(a));
    }
    void act(site::action::fetch& a) { bulk_box_.put(std::move(a)); }
    void act(site::action::make_first_model& a) { bulk_box_.put(a); }
    void act(site::action::upload& a) { bulk_box_.put(std::move(a)); }
    void act(site::action::evaluate& a) { bulk_box_.put(a); }
    void act(site::action::train_group& a) { trainer_.train_group(a); }
    void act(site::action::end_phase&) { trainer_.end_phase(); }
    void act(site::action::drop_phase&) { trainer_.drop_phase(); }
    void act(site::action::settle& a) {
        remove_unsent(options_.work_dir, a.id);
        trainer_.settle(a);
        log(fmt::format("contribution {} {}{}", a.id.text, a.merged ? "merged" : "turned down: ", a.reason));
    }
    void act(site::action::finish& a) {
        log(fmt::format("ends with {}: {}", a.exit_code, a.reason));
        exit_code_ = a.exit_code;
    }
    void act(site::action::note& a) { log(a.text); }

    void log(std::string_view text) {
        if (options_.log) options_.log(text);
    }

    // --- threads ---

    void serve_calls() {
        while (!call_box_.closed()) {
            auto order = call_box_.take(std::chrono::milliseconds(1'000));
            if (!order) continue;
            const auto wire = encode(order->what, order->request_id);
            const auto reply = json_call(*calls_, wire.path, wire.body);
            {
                // a stop that comes now must not cancel the call after this one, which may be the farewell
                const std::lock_guard lock(clients_mutex_);
                polling_.store(false);
            }
            if (calls_->cancelled() && !call_box_.closed()) renew_calls();
            if (!reply) {
                events_.put(site::event::refused{failure_of(reply.error())});
            } else if (!reply->ok()) {
                events_.put(site::event::refused{failure_of(*reply)});
            } else if (auto decoded = decode(order->what, reply->body); decoded) {
                events_.put(site::event::replied{*std::move(decoded)});
            } else {
                log(decoded.error().context);
                events_.put(site::event::refused{{errc::internal, decoded.error().context, 1'000, {}}});
            }
        }
    }
    // A cancelled client stays cancelled: only a long poll that a stop ended gets here.
    void renew_calls() {
        auto made = http_client::make(options_.server);
        const std::lock_guard lock(clients_mutex_);
        if (made && !call_box_.closed()) calls_.emplace(*std::move(made));
    }

    using bulk_order =
        std::variant<site::action::fetch, site::action::make_first_model, site::action::upload, site::action::evaluate>;

    void serve_bulk() {
        while (!bulk_box_.closed()) {
            auto order = bulk_box_.take(std::chrono::milliseconds(1'000));
            if (order) std::visit([&](const auto& o) { do_bulk(o); }, *order);
        }
    }
    [[nodiscard]] retry_world world() {
        return {[this] { return std::uniform_real_distribution<double>(0, 1)(jitter_); },
                [this](double s) {
                    return !ended_.closed() &&
                           !ended_.take(std::chrono::milliseconds(static_cast<std::int64_t>(s * 1000))) &&
                           !ended_.closed();
                }};
    }
    void do_bulk(const site::action::fetch& order) {
        const auto begun = now_ms();
        const std::string path = fmt::format("{}/generation-{}.safetensors", options_.work_dir, order.current.count);
        auto done = download_blob(*bulk_, order.wire.sha256, order.wire.bytes, path, world());
        trainer_.spent(transfer::download, now_ms() - begun);
        if (done) done = trainer_.adopt(order, path);
        if (!done) return events_.put(site::event::fetch_failed{failure_of(done.error())});
        if (!loaded_file_.empty() && loaded_file_ != path) {
            std::error_code ignored;
            std::filesystem::remove(loaded_file_, ignored);
        }
        loaded_file_ = path;
        events_.put(site::event::adopted{order.current, now_ms() - begun});
    }
    void do_bulk(const site::action::make_first_model&) {
        auto job = trainer_.first_model();
        if (!job) return events_.put(site::event::upload_failed{failure_of(job.error())});
        job->who = who_;
        report_upload(*job);
    }
    void do_bulk(const site::action::upload& order) {
        upload_job job{trainer_.contribution_file(order.blob.sha256),
                       order.blob.sha256,
                       order.blob.bytes,
                       "delta",
                       order.codec,
                       order.base,
                       who_};
        report_upload(job);
    }
    void report_upload(const upload_job& job) {
        const auto begun = now_ms();
        const auto sent = upload_blob(*bulk_, job, world());
        trainer_.spent(transfer::upload, now_ms() - begun);
        if (!sent) return events_.put(site::event::upload_failed{failure_of(sent.error())});
        events_.put(site::event::uploaded{now_ms() - begun});
    }
    void do_bulk(const site::action::evaluate&) {
        auto score = trainer_.evaluate();
        if (!score) log("evaluation failed: " + score.error().context);
        events_.put(score ? *score : site::event::evaluated{});
    }

    void serve_beats() {
        std::uint64_t number = 0;
        while (!ended_.closed()) {
            const auto [beat, every_ms] =
                with_session([](site::session& s) { return std::pair(s.beat(), s.beat_every_ms()); });
            if (beat) {
                const std::int64_t sent = now_ms();
                const auto wire = encode(*beat, fmt::format("beat-{}", ++number));
                // one hung call must not outlive the lease
                const auto reply = json_call(*beats_, wire.path, wire.body, std::max<std::int64_t>(500, every_ms / 2));
                if (!reply)
                    events_.put(site::event::beat_refused{failure_of(reply.error())});
                else if (!reply->ok())
                    events_.put(site::event::beat_refused{failure_of(*reply)});
                else if (auto decoded = decode_heartbeat(*beat, reply->body); decoded)
                    events_.put(site::event::beat_replied{*decoded, sent});
                else
                    log(decoded.error().context);
            }
            beat_pause_.take(std::chrono::milliseconds(beat ? every_ms : 20));
            if (ended_.closed()) return;
        }
    }

    lease::caller who_;
    site::session session_;
    site_trainer& trainer_;
    const driver_options& options_;
    std::mutex session_mutex_;
    std::mutex clients_mutex_;
    std::optional<http_client> calls_;
    std::optional<http_client> bulk_;
    std::optional<http_client> beats_;
    mailbox<site::event_t> events_;
    mailbox<site::action::call> call_box_;
    mailbox<bulk_order> bulk_box_;
    mailbox<int> ended_;
    mailbox<int> beat_pause_;
    std::atomic<bool> polling_{false};
    std::string loaded_file_;
    std::optional<int> exit_code_;
    std::minstd_rand jitter_{std::random_device{}()};
};

}  // namespace

result<int> run_site(site::session_settings settings, site_trainer& trainer, const driver_options& options) {
    driver d(std::move(settings), trainer, options);
    return d.run();
}

}  // namespace darlcore::client
