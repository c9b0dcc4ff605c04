// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "darlcore/error.hpp"
#include "darlcore/site/messages.hpp"

namespace darl {

/// A site's own record of what it read, one JSON object per line, appended and flushed at the moment of the read. The
/// audits of `darl simulate` and `darl demo` believe nothing else.
///   {"kind":"started"}                                                       a process began; phases are numbered anew
///   {"kind":"read","phase":p,"group":g,"counter":c,"epoch":e,"spans":[[s,e],...]}        positions, written before
///   they are used
///   {"kind":"contribution","phase":p,"groups":n,"id":...,"sha256":...}       groups 0..n-1 of the phase are in it
///   {"kind":"settled","id":...,"merged":true|false}
/// Thread-safety: all members may be called from several threads.
class run_record {
public:
    /// Opens for appending and notes the start. Errors: errc::io_error naming the file.
    darlcore::result<void> open(const std::string& path);
    void read(std::uint64_t phase, const darlcore::site::action::train_group& group);
    void contribution(std::uint64_t phase, std::uint64_t groups, const std::string& id, const std::string& sha256);
    void settled(const darlcore::site::action::settle& outcome);

private:
    void write(const std::string& line);
    std::mutex mutex_;
    std::ofstream file_;
};

}  // namespace darl
