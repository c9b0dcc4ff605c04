// SPDX-License-Identifier: Apache-2.0
#include "backends/slurm/spool.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "backends/slurm/durable_file.hpp"
#include "darlcore/units.hpp"

namespace darlcore::slurm {

namespace fs = std::filesystem;

spool::spool(spool&& other) noexcept { *this = std::move(other); }

spool& spool::operator=(spool&& other) noexcept {
    std::swap(folder_, other.folder_);
    std::swap(prefix_, other.prefix_);
    std::swap(next_, other.next_);
    std::swap(ids_, other.ids_);
    std::swap(sizes_, other.sizes_);
    std::swap(bytes_, other.bytes_);
    std::swap(bytes_max_, other.bytes_max_);
    std::swap(dropped_, other.dropped_);
    std::swap(lock_fd_, other.lock_fd_);
    return *this;
}

spool::~spool() {
    if (lock_fd_ >= 0) ::close(lock_fd_);
}

std::string spool::file_of(const std::string& id) const { return folder_ + "/" + id + ".json"; }

result<spool> spool::open(const std::string& folder, const std::string& site) {
    spool s;
    s.folder_ = folder;
    std::error_code failed;
    fs::create_directories(folder, failed);
    if (failed || ::chmod(folder.c_str(), 0700) != 0) return system_failure(folder, "cannot be made");
    s.lock_fd_ = ::open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s.lock_fd_ < 0) return system_failure(folder + "/lock", "cannot be made");
    if (::flock(s.lock_fd_, LOCK_EX | LOCK_NB) != 0)
        return fail(errc::locked, folder + ": another collector is at work; this cycle is left out");
    // "<prefix> <next>": the counter goes on where it was, so that no id is used twice
    const std::string state = read_whole(folder + "/counter");
    const std::size_t blank = state.find(' ');
    const bool known = blank != std::string::npos && is_valid_name(state.substr(0, blank));
    if (known) {
        s.prefix_ = state.substr(0, blank);
        s.next_ = std::strtoull(state.c_str() + blank, nullptr, 10);
    } else {
        unsigned short random = 0;
        if (::getrandom(&random, sizeof random, 0) != sizeof random) return system_failure(folder, "no random number");
        char text[8];
        std::snprintf(text, sizeof text, "-%04x", static_cast<unsigned>(random));
        s.prefix_ = site.substr(0, 48) + text;
    }
    for (const auto& entry : fs::directory_iterator(folder, failed)) {
        const std::string name = entry.path().filename().string();
        if (name.size() <= 5 || name.front() == '.' || name.compare(name.size() - 5, 5, ".json") != 0) continue;
        s.ids_.push_back(name.substr(0, name.size() - 5));
    }
    std::sort(s.ids_.begin(), s.ids_.end());
    for (const std::string& id : s.ids_) {
        std::error_code ignored;
        s.sizes_.push_back(static_cast<std::size_t>(fs::file_size(s.file_of(id), ignored)));
        s.bytes_ += s.sizes_.back();
        if (id.rfind(s.prefix_ + "-", 0) == 0)
            s.next_ =
                std::max<std::uint64_t>(s.next_, std::strtoull(id.c_str() + s.prefix_.size() + 1, nullptr, 10) + 1);
    }
    return s;
}

result<std::string> spool::append(json::value record) {
    char number[24];
    std::snprintf(number, sizeof number, "-%08llu", static_cast<unsigned long long>(next_));
    const std::string id = prefix_ + number;
    if (auto ok = replace_durably(folder_, "counter", prefix_ + " " + std::to_string(next_ + 1)); !ok)
        return ok.error();
    ++next_;
    record.set("id", id);
    if (dropped_ > 0) record.set("dropped", dropped_);
    const std::string text = json::dump(record);
    if (auto ok = replace_durably(folder_, id + ".json", text); !ok) return ok.error();
    dropped_ = 0;
    ids_.push_back(id);
    sizes_.push_back(text.size());
    bytes_ += text.size();
    drop_oldest();
    return id;
}

void spool::drop_oldest() {
    while (bytes_ > bytes_max_ && ids_.size() > 1) {
        ::unlink(file_of(ids_.front()).c_str());
        bytes_ -= sizes_.front();
        ids_.erase(ids_.begin());
        sizes_.erase(sizes_.begin());
        ++dropped_;
    }
}

std::vector<json::value> spool::pending(std::size_t most, std::size_t bytes_most) {
    std::vector<json::value> made;
    std::vector<std::string> broken;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < ids_.size(); ++i) {
        const std::string& id = ids_[i];
        bytes += sizes_[i];
        if (made.size() >= most || (!made.empty() && bytes > bytes_most)) break;
        auto record = json::parse(read_whole(file_of(id)));
        if (record)
            made.push_back(std::move(*record));
        else
            broken.push_back(id);
    }
    for (const std::string& id : broken) {
        ::rename(file_of(id).c_str(), (folder_ + "/." + id + ".broken").c_str());
        ++dropped_;
    }
    remove(broken);
    return made;
}

void spool::remove(const std::vector<std::string>& ids) {
    for (const std::string& id : ids) {
        const auto at = std::find(ids_.begin(), ids_.end(), id);
        if (at == ids_.end()) continue;
        const auto i = at - ids_.begin();
        ::unlink(file_of(id).c_str());
        bytes_ -= sizes_[static_cast<std::size_t>(i)];
        sizes_.erase(sizes_.begin() + i);
        ids_.erase(at);
    }
}

double upload_backoff_s(unsigned attempt, double uniform) {
    const double base = std::min(300.0, std::ldexp(1.0, static_cast<int>(std::min(attempt, 20U))));
    return base * (0.5 + 0.5 * uniform);
}

}  // namespace darlcore::slurm
