// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <asio/io_context.hpp>
#include <asio/thread_pool.hpp>

#include "backends/asio/ledger_service.hpp"
#include "backends/asio/model_work.hpp"
#include "backends/storage/blob_store.hpp"
#include "backends/storage/model_directory.hpp"

namespace darlcore::http {

/// Blobs and model state behind the ledger: the routes of uploads and downloads, and the effects that move files
/// (merge, publish, garbage). Requests are on the loop's thread, bytes on `bulk`, everything on generations on one
/// thread of its own.
class model_service : public extra_routes {
public:
    using fatal_handler = std::function<void(const error&)>;

    model_service(asio::io_context& loop, asio::thread_pool& bulk, ledger_service& service, storage::file_system& files,
                  std::string state_path, std::unique_ptr<model_work> work);
    ~model_service() override;

    /// Opens both stores and compares them with the journal.
    /// Errors: errc::refused, errc::corrupt (exit 3), those of the file system.
    result<void> open(bool new_run);
    /// Tells the ledger what is stored; begins what waits. `init_file`: weights for generation 0, empty = a site's.
    void start(const std::string& init_file, fatal_handler on_fatal);
    void on_effect(const ledger::effect& e);
    /// Waits for work in progress.
    void stop();

    [[nodiscard]] std::optional<found> find(const request_head& head) const override;
    asio::awaitable<reply> run(api_call& call) override;
    void add_status(json::value& status) const override;
    void add_metrics(std::string& text) const override;

private:
    struct uploader {
        lease::caller who;
        std::optional<reply> refused;
    };

    asio::awaitable<reply> announce(api_call& call);
    asio::awaitable<reply> upload_status(api_call& call);
    asio::awaitable<reply> patch(api_call& call);
    asio::awaitable<reply> abandon(api_call& call);
    asio::awaitable<reply> put(api_call& call);
    asio::awaitable<reply> download(api_call& call);
    asio::awaitable<reply> list(api_call& call);
    asio::awaitable<result<storage::part_accepted>> take_part(api_call& call, storage::part_writer& writer);

    uploader uploader_of(const api_call& call);
    reply failed(const error& why);
    void stored(const std::string& sha256);
    [[nodiscard]] storage::blob_standing standing(const std::string& codec) const;
    reply stored_reply(const std::string& scan);

    void merge(const ledger::effects::start_merge& e);
    void merge_now(const merge_order& order);
    void initialise(const std::string& source, std::optional<site_id> by, std::string sha256);
    void publish(const ledger::effects::publish_generation& e);
    void collect(const ledger::effects::collect_garbage& e);
    void prepare_epoch(epoch_index epoch);
    void remove_blob(const std::string& sha256);
    void learn_sizes(const std::string& global_path);

    template <class Request>
    void tell(Request request);
    void report(const std::string& what, const error& why);

    asio::io_context& loop_;
    asio::thread_pool& bulk_;
    asio::thread_pool merges_{1};
    ledger_service& service_;
    ledger_core& core_;
    storage::file_system& files_;
    std::string state_path_;
    std::unique_ptr<model_work> work_;
    std::unique_ptr<storage::blob_store> blobs_;
    std::optional<storage::model_directory> models_;
    fatal_handler on_fatal_;
    std::atomic<std::uint64_t> data_bytes_{0};  ///< of the model in f32, without a header
    std::uint64_t bytes_up_ = 0;
    std::uint64_t bytes_down_ = 0;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace darlcore::http
