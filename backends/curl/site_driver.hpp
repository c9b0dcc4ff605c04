// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backends/curl/blob_transfer.hpp"
#include "backends/curl/http_client.hpp"
#include "darlcore/error.hpp"
#include "darlcore/site/session.hpp"

namespace darlcore::client {

enum class transfer : std::uint8_t { download, upload };

/// What trains. Calls come from one thread at a time; train_group, end_phase and drop_phase return at once, the work
/// goes on in the trainer's own thread and is reported through the function that `start` hands over: group_trained,
/// phase_finished, phase_failed, phase_dropped.
class site_trainer {
public:
    virtual ~site_trainer() = default;

    virtual void start(std::function<void(site::event_t)> report) = 0;
    /// Loads verified weights; the file stays where it is until the next call.
    virtual result<void> adopt(const site::action::fetch& what, const std::string& wire_file) = 0;
    /// Writes the first weights of the run (f32); gives the file.
    virtual result<upload_job> first_model() = 0;
    /// Group 0 begins a phase, from the adopted weights.
    virtual void train_group(const site::action::train_group& group) = 0;
    virtual void end_phase() = 0;
    virtual void drop_phase() = 0;
    /// Scores the adopted weights; blocks. Zero windows: there is nothing to score with.
    virtual result<site::event::evaluated> evaluate() = 0;
    /// The file of a finished contribution, by digest.
    virtual std::string contribution_file(const std::string& sha256) = 0;
    /// The contribution is merged, or turned down: its file may go; codec residuals advance only when merged.
    virtual void settle(const site::action::settle& outcome) = 0;
    /// Time that a transfer took, failed ones too; for the books of a phase.
    virtual void spent(transfer, std::int64_t /*ms*/) {}
    /// Ends the work at once; afterwards nothing is reported.
    virtual void stop() = 0;
};

struct driver_options {
    client_options server;
    std::string work_dir;  // staging of downloads, the note of an unsent contribution
    std::function<void(std::string_view)> log;
    const std::atomic<bool>* stop = nullptr;  // set by a signal handler
};

/// Runs a session to its end: calls, bulk transfers and heartbeats each on their own thread and connection, so that a
/// long upload or a busy trainer never starves a heartbeat. Returns the exit code of the session. Errors:
/// errc::invalid_argument and errc::token (server options), errc::io_error (work_dir).
result<int> run_site(site::session_settings settings, site_trainer& trainer, const driver_options& options);

}  // namespace darlcore::client
