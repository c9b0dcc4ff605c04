// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace darlcore::slurm {

/// `text` without carriage returns and terminal escape sequences; other control characters but newline and tab are
/// dropped.
std::string plain_text(std::string_view text);

/// The lines of a text, without their newlines; a last line without one counts.
std::vector<std::string_view> lines_of(std::string_view text);

std::string_view trimmed(std::string_view text);
std::vector<std::string_view> split(std::string_view text, char separator);
std::vector<std::string_view> words_of(std::string_view text);
bool starts_with(std::string_view text, std::string_view prefix);
bool contains(std::string_view text, std::string_view part);

/// A decimal number that fills the whole text, at most 18 digits, no sign.
std::optional<std::int64_t> digits(std::string_view text);

/// What a time in Slurm's output says.
struct time_reading {
    enum class kind : std::uint8_t { instant, unknown, foreign, ambiguous_zone };
    kind what = kind::foreign;
    std::int64_t epoch_s = 0;
};

/// epoch | YYYY-MM-DDTHH:MM:SS[(+|-)HHMM] | Unknown | None | N/A | 0. Anything else is foreign: never a guess.
/// A bare local time counts as UTC only if the caller knows that the child ran so.
time_reading read_time(std::string_view text, bool assume_utc);

/// "YYYY-MM-DDTHH:MM:SS" of an instant, UTC.
std::string utc_text(std::int64_t epoch_s);

/// A walltime limit. none: the text says that there is no limit, or that it is not known.
struct duration_reading {
    bool valid = false;
    bool none = false;
    std::int64_t seconds = 0;
};

/// What -t accepts: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]; 0, -1, UNLIMITED,
/// INFINITE = none.
duration_reading read_requested_duration(std::string_view text);

/// What sacct, squeue, sinfo and scontrol print: [days-][hours:]minutes:seconds, or a word for no limit.
duration_reading read_reported_duration(std::string_view text);

}  // namespace darlcore::slurm
