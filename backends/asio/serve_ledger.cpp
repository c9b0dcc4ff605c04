// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/serve_ledger.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>

#include <fmt/format.h>
#include <unistd.h>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <asio/thread_pool.hpp>

#include "backends/asio/model_service.hpp"
#include "backends/storage/ledger_replay.hpp"
#include "backends/storage/posix.hpp"
#include "backends/storage/snapshot_store.hpp"
#include "darlcore/ledger/machine.hpp"

namespace darlcore::http {

namespace {

constexpr std::chrono::seconds one_request_window{5};

bool is_loopback(std::string_view address) { return address.starts_with("127.") || address == "::1"; }

/// What access a server gives: tokens of a file, a bare token, or open on loopback.
result<access_control> make_access(const serve_options& o, const serve_reports& reports) {
    access_options options;
    options.hosts = o.host_names;
    if (!o.token_file.empty()) {
        auto table = load_token_file(o.token_file);
        if (!table) return table.error();
        return access_control(std::move(options), std::move(*table));
    }
    if (!o.bare_token.empty()) {
        reports.log(
            "warning: one bare token speaks for all sites; a token file with one entry per site is safer (darl token "
            "new)");
        return access_control(std::move(options), token_table::bare(o.bare_token));
    }
    if (!is_loopback(o.address)) {
        return fail(
            errc::refused,
            fmt::format("listening on {} without tokens would be open to everybody; give --token-file (make tokens "
                        "with darl token new) or listen on 127.0.0.1",
                        o.address));
    }
    options.open = true;
    return access_control(std::move(options), {});
}

result<std::string> random_run_id() {
    auto token = new_token();
    if (!token) return token;
    return token->substr(0, 32);
}

/// A run does not change its rules by being restarted.
result<void> compare_settings(const serve_options& o, const ledger::run_settings& stored) {
    const auto differs = [](std::string_view what, const auto& here, const auto& there) {
        return fail(errc::invalid_argument, fmt::format("this run was made with {} {}, the command says {}; leave the "
                                                        "option out, or use another state directory",
                                                        what, there, here));
    };
    if (o.geometry_given) {
        const auto& a = o.settings.space;
        const auto& b = stored.space;
        if (a.num_samples != b.num_samples) return differs("num-samples", a.num_samples, b.num_samples);
        if (a.block_size != b.block_size) return differs("block-size", a.block_size, b.block_size);
        if (a.seed != b.seed) return differs("seed", a.seed, b.seed);
    }
    if (o.policy_given && o.settings.lease.commit_policy != stored.lease.commit_policy)
        return differs("commit policy", lease::word(o.settings.lease.commit_policy),
                       lease::word(stored.lease.commit_policy));
    if (o.outer_given && !o.change_outer_policy && o.settings.outer != stored.outer)
        return fail(errc::invalid_argument,
                    "this run was made with another outer policy; --change-outer-policy changes it on purpose");
    return {};
}

struct opened_run {
    std::unique_ptr<storage::ledger_store> store;
    std::unique_ptr<ledger::machine> machine;
    ledger_time now;
    std::vector<ledger::effect> wanted;
    bool is_new = false;
};

storage::lock_owner this_process(const serve_options& o) {
    storage::lock_owner self;
    self.pid = ::getpid();
    self.boot_id = storage::boot_id();
    self.host = storage::host_name();
    self.address = fmt::format("{}:{}", o.address, o.port);
    return self;
}

result<void> make_new_run(serve_options& o, opened_run& run) {
    if (!o.geometry_given) {
        return fail(
            errc::invalid_argument,
            fmt::format("'{}' holds no run yet: give --manifest, or --num-samples and --block-size, to make one",
                        o.state_dir));
    }
    if (auto ok = ledger::check(o.settings); !ok) return ok;
    run.machine = std::make_unique<ledger::machine>(o.settings);
    return {};
}

void append_all(opened_run& run, const std::vector<ledger::record>& records) {
    for (const ledger::record& r : records) run.store->append(ledger::type_number(r), run.now.ms, ledger::encode(r));
}

/// Opens or makes the run and writes the start of this term; all durable before the port opens.
result<opened_run> open_run(serve_options& o, storage::file_system& files, const serve_reports& reports) {
    if (o.mode == start_mode::fresh && storage::exists(files, storage::join(o.state_dir, "journal"))) {
        const auto moved = storage::supersede(files, o.state_dir, std::to_string(std::time(nullptr)));
        if (!moved) return moved.error();
        reports.log(fmt::format("the former run was moved to {}", *moved));
    }
    opened_run run;
    storage::ledger_replay replayed;
    storage::store_options store_options;
    store_options.resume_only = o.mode == start_mode::resume;
    store_options.mutants.skip_fsync = !o.sync;
    if (o.geometry_given) {
        if (o.settings.run_id.empty()) {
            auto id = random_run_id();
            if (!id) return id.error();
            o.settings.run_id = *id;
        }
    }
    const bool fresh_directory = !storage::exists(files, storage::join(o.state_dir, "journal"));
    if (fresh_directory && o.mode != start_mode::resume) {
        if (auto ok = make_new_run(o, run); !ok) return ok.error();
        store_options.identity = storage::identity_of(*run.machine);
    }
    auto target = replayed.target();
    if (o.plant == planted_fault::steal_replay) target = storage::without_steals(std::move(target));
    auto store = storage::ledger_store::open(files, o.state_dir, this_process(o), store_options, target);
    if (!store && store.error().code == errc::invalid_argument &&
        !run.machine) {  // a journal folder without a run in it
        if (auto ok = make_new_run(o, run); !ok) return ok.error();
        store_options.identity = storage::identity_of(*run.machine);
        store = storage::ledger_store::open(files, o.state_dir, this_process(o), store_options, target);
    }
    if (!store) return store.error();
    run.store = std::make_unique<storage::ledger_store>(std::move(*store));
    for (const std::string& w : run.store->recovered().warnings) reports.log("warning: " + w);
    run.is_new = run.store->is_new();
    run.now = ledger_time{run.store->recovered().position.ledger_ms};
    if (run.is_new) {
        if (!run.machine) return fail(errc::internal, "a new run without settings");
        append_all(run, {run.machine->first_record()});
    } else {
        run.machine = replayed.take();
        if (!run.machine) return fail(errc::corrupt, fmt::format("'{}' has a journal without a run", o.state_dir));
        if (auto ok = compare_settings(o, run.machine->settings()); !ok) return ok.error();
    }
    ledger::order_switches switches;
    switches.pledge_before_merge = o.plant != planted_fault::pledge;
    run.machine->set_switches_for_testing(switches);
    auto started = run.machine->handle(ledger::start_input{darlcore::term{run.store->term()}}, run.now);
    append_all(run, started.records);
    run.wanted = std::move(started.effects);
    if (o.change_outer_policy && o.outer_given) {
        auto changed = run.machine->handle(ledger::change_outer_policy{o.settings.outer}, run.now);
        append_all(run, changed.records);
    }
    if (auto ok = run.store->commit(); !ok) return ok.error();
    return run;
}

/// Everything that serves one run, in one place, so that signals can reach it.
class running {
public:
    running(serve_options options, const serve_reports& reports, access_control access, storage::file_system& files)
        : options_(std::move(options)),
          reports_(reports),
          access_(std::move(access)),
          files_(files),
          bulk_(options_.bulk_threads),
          signals_(loop_) {}

    result<void> start(opened_run run);
    result<void> run();

private:
    void on_signal(int number);
    void wait_for_signal();
    void stop(std::optional<error> why);
    void reload_tokens();
    void watch_end();

    serve_options options_;
    const serve_reports& reports_;
    access_control access_;
    storage::file_system& files_;
    asio::io_context loop_{1};
    asio::thread_pool bulk_;
    asio::signal_set signals_;
    asio::steady_timer end_{loop_};
    std::unique_ptr<storage::ledger_store> store_;
    std::unique_ptr<ledger_core> core_;
    std::unique_ptr<ledger_service> service_;
    std::unique_ptr<model_service> models_;
    std::unique_ptr<extra_routes> probes_;
    std::unique_ptr<server> server_;
    std::optional<error> failure_;
    std::optional<std::chrono::steady_clock::time_point> asked_;
    bool stopping_ = false;
};

result<void> running::start(opened_run run) {
    const bool is_new = run.is_new;
    store_ = std::move(run.store);
    core_ = std::make_unique<ledger_core>(loop_, bulk_, *store_, std::move(run.machine), run.now, options_.core);
    service_ = std::make_unique<ledger_service>(loop_, *core_, access_, options_.service);
    if (options_.work) {
        models_ = std::make_unique<model_service>(loop_, bulk_, *service_, files_, options_.state_dir,
                                                  std::move(options_.work));
        if (auto ok = models_->open(is_new); !ok) return ok;
        service_->add(*models_);
    }
    if (options_.make_probes) {
        probes_ = options_.make_probes(bulk_, *service_, storage::join(options_.state_dir, "probes"));
        service_->add(*probes_);
    }
    server_ =
        std::make_unique<server>(loop_, bulk_, options_.limits, [this](exchange& x) { return service_->handle(x); });
    service_->show_server(server_.get());
    if (options_.tls) {
        if (auto ok = server_->use_tls(*options_.tls); !ok) return ok;
    }
    const auto port = server_->listen(options_.address, options_.port);
    if (!port) return port.error();
    const bool v6 = options_.address.find(':') != std::string::npos;
    const std::string where =
        v6 ? fmt::format("[{}]:{}", options_.address, *port) : fmt::format("{}:{}", options_.address, *port);
    if (auto ok = store_->state().tell_address(where); !ok) return ok;
    const auto on_fatal = [this](const error& e) { stop(e); };
    core_->start(
        std::move(run.wanted),
        [this](const ledger::effect& e) {
            service_->on_effect(e);
            if (models_) models_->on_effect(e);
        },
        on_fatal);
    if (models_) models_->start(options_.init_file, on_fatal);
    for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) signals_.add(number);
    wait_for_signal();
    reports_.listening(fmt::format("{}://{}", options_.tls ? "https" : "http", where), store_->term());
    return {};
}

void running::wait_for_signal() {
    signals_.async_wait([this](const asio::error_code& ec, int number) {
        if (ec) return;
        on_signal(number);
        wait_for_signal();
    });
}

// Batch systems send several signals for one end: what comes within 5 s of the first is the same request.
void running::on_signal(int number) {
    const auto now = std::chrono::steady_clock::now();
    if (number == SIGHUP) return reload_tokens();
    if (!asked_) {
        if (number == SIGUSR1) return;
        asked_ = now;
        reports_.log("stopping: answers in progress are finished, the journal is closed");
        return stop(std::nullopt);
    }
    if (number != SIGUSR1 && now - *asked_ > one_request_window) {
        reports_.log("stopping at once");
        loop_.stop();
    }
}

void running::reload_tokens() {
    if (options_.token_file.empty()) return;
    auto table = load_token_file(options_.token_file);
    if (!table) return reports_.log("token file not reloaded, the old tokens stay: " + table.error().context);
    access_.replace(std::move(*table));
    reports_.log("token file reloaded");
}

void running::stop(std::optional<error> why) {
    if (why && !failure_) failure_ = std::move(why);
    if (stopping_) return;
    stopping_ = true;
    service_->stop();
    server_->stop();
    core_->stop();
    watch_end();
}

void running::watch_end() {
    if (server_->stopped()) {
        asio::error_code ignored;
        signals_.cancel(ignored);
        loop_.stop();
        return;
    }
    end_.expires_after(std::chrono::milliseconds(20));
    end_.async_wait([this](const asio::error_code& ec) {
        if (!ec) watch_end();
    });
}

result<void> running::run() {
    loop_.run();
    if (models_) models_->stop();
    bulk_.join();
    const bool clean = !failure_ && core_->degraded().empty();
    auto last =
        clean && core_->records_since_snapshot() > 0 ? std::make_unique<ledger::machine>(core_->machine()) : nullptr;
    server_.reset();
    models_.reset();
    probes_.reset();
    service_.reset();
    core_.reset();  // commits what is open
    if (failure_) return *failure_;
    if (last) {  // a clean stop leaves a snapshot, so that the next start replays nothing
        if (last->verify()) {
            if (auto ok = store_->snapshot(last->snapshot()); !ok)
                reports_.log("no snapshot at the end: " + ok.error().context);
        }
    }
    return store_->close();
}

}  // namespace

result<void> serve_ledger(serve_options options, const serve_reports& reports) {
    auto access = make_access(options, reports);
    if (!access) return access.error();
    storage::posix_file_system files;
    if (auto ok = storage::ensure_directory(files, options.state_dir); !ok) return ok;
    const auto free = files.free_bytes(options.state_dir);
    reports.log(fmt::format("state directory {} on {}, {} MiB free", options.state_dir,
                            storage::file_system_type(options.state_dir), free ? *free >> 20U : 0));
    auto run = open_run(options, files, reports);
    if (!run) return run.error();
    running server_run(std::move(options), reports, std::move(*access), files);
    if (auto ok = server_run.start(std::move(*run)); !ok) return ok;
    return server_run.run();
}

}  // namespace darlcore::http
