// SPDX-License-Identifier: Apache-2.0
// Any sequence of calls of an uploading client, restarts of the server among them: the stored offset counts exactly the
// bytes that were accepted, and a name never holds other bytes than those of its digest.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "backends/sim/disk.hpp"
#include "backends/storage/blob_store.hpp"
#include "darlcore/assert.hpp"

using namespace darlcore;
using namespace darlcore::storage;

namespace {

class nothing_to_see final : public blob_scanner {
public:
    void update(std::string_view bytes) override { count_ += bytes.size(); }
    result<std::string> finish() override { return std::to_string(count_); }

private:
    std::uint64_t count_ = 0;
};

/// A small file, a client that wants to send it and does so badly, and what the store must then hold.
class world {
public:
    explicit world(std::string_view program) : program_(program) {
        for (int i = 0; i < 700; ++i) body_.push_back(static_cast<char>(i * 31 + (i >> 4)));
        facts_.sha256 = sha256_hex(body_);
        facts_.bytes = body_.size();
        facts_.codec = "bf16";
        facts_.generation = 3;
        facts_.site = "a";
        facts_.incarnation = "1";
        limits_.reserve_bytes = 0;
        DARLCORE_ASSERT(ensure_directory(disk_, "/run").has_value());
        restart();
    }
    void run() {
        while (!program_.empty()) {
            step(next() % 8);
            check();
        }
    }

private:
    unsigned next() {
        if (program_.empty()) return 0;
        const auto byte = static_cast<unsigned char>(program_.front());
        program_.remove_prefix(1);
        return byte;
    }
    void restart() {
        store_.reset();
        auto opened = blob_store::open(
            disk_, "/run", limits_, [](const blob_facts&) { return std::make_unique<nothing_to_see>(); },
            [this] { return "u" + std::to_string(++ids_); }, now_);
        DARLCORE_ASSERT(opened.has_value());
        store_ = std::move(*opened);
    }
    void step(unsigned kind) {
        switch (kind) {
            case 0: {
                const auto told = store_->announce(facts_, {3, 0, 0}, now_);
                DARLCORE_ASSERT(told.has_value() && told->stored == stored_);
                if (stored_) return;
                if (told->upload.id != id_) arrived_ = 0;
                id_ = told->upload.id;
                return;
            }
            case 1:
                return restart();
            case 2:
                if (id_.empty()) return;
                if (store_->abandon(id_, next() % 2 == 0 ? "a" : "b")) id_.clear();
                return;
            case 3:
                now_ += 1000 * next();
                return;
            case 4:
                for (const std::string& id : store_->unprepared()) static_cast<void>(store_->prepare(id, now_));
                return;
            default:
                return send(kind == 7);
        }
    }
    /// A part at some offset of some length, perhaps damaged, perhaps with a checksum of the right or of other bytes,
    /// perhaps somebody else's.
    void send(bool whole_rest) {
        if (id_.empty()) return;
        const unsigned how = next();
        const std::size_t offset = (how & 1U) != 0 ? next() * 3 : arrived_;
        const std::size_t left = offset < body_.size() ? body_.size() - offset : 0;
        const std::size_t length = whole_rest ? left : std::min<std::size_t>(left, next());
        std::string part = body_.substr(std::min(offset, body_.size()), length);
        const bool damaged = (how & 2U) != 0 && !part.empty();
        std::optional<std::string> checksum;
        if ((how & 4U) != 0) checksum = sha256_hex(part);
        if (damaged) part.back() = static_cast<char>(part.back() ^ 0x10);
        const std::string site = (how & 24U) == 24 ? "b" : "a";
        const auto taken = store_->append(id_, site, offset, part, checksum, now_);
        if (!taken) return refused(taken.error().code, offset, part, checksum.has_value());
        DARLCORE_ASSERT(site == "a" && offset == arrived_ && !(damaged && checksum));
        damaged_ = damaged_ || damaged;
        arrived_ += part.size();
        DARLCORE_ASSERT(taken->offset == arrived_ || taken->stored);
        if (!taken->stored) return;
        DARLCORE_ASSERT(arrived_ == body_.size() && !damaged_);
        stored_ = true;
        id_.clear();
    }
    void refused(errc code, std::size_t offset, std::string_view part, bool with_checksum) {
        if (code != errc::digest_mismatch) return;
        // only a whole body with a flipped bit in it, and only when no checksum of its part had told
        DARLCORE_ASSERT(offset == arrived_ && arrived_ + part.size() == body_.size());
        DARLCORE_ASSERT(damaged_ || !with_checksum);
        id_.clear();
        damaged_ = false;
        arrived_ = 0;
    }
    void check() {
        if (!id_.empty()) {
            const auto status = store_->status(id_, now_);
            if (!status) {
                DARLCORE_ASSERT(status.error().code == errc::gone);
                id_.clear();
            } else {
                DARLCORE_ASSERT(status->offset == arrived_ && status->length == body_.size());
            }
        }
        if (id_.empty()) {
            arrived_ = 0;
            damaged_ = false;
        }
        const auto found = store_->find(facts_.sha256);
        DARLCORE_ASSERT(found.has_value() == stored_);
        if (stored_) DARLCORE_ASSERT(read_file(disk_, store_->path_of(facts_.sha256)).value() == body_);
    }

    std::string_view program_;
    sim::disk disk_;
    blob_limits limits_;
    blob_facts facts_;
    std::unique_ptr<blob_store> store_;
    std::string body_;
    std::string id_;
    std::size_t arrived_ = 0;
    bool damaged_ = false;
    bool stored_ = false;
    std::int64_t now_ = 0;
    int ids_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    world({reinterpret_cast<const char*>(data), std::min<std::size_t>(size, 300)}).run();
    return 0;
}
