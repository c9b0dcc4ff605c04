// SPDX-License-Identifier: Apache-2.0
// Any parameters of a block space are an error with a reason, or give an order that equals the plain twin's, a digest,
// and phases that train each window once.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "darlcore/block_space.hpp"
#include "darlcore/interval_set.hpp"
#include "darlcore/phase.hpp"
#include "darlcore/testing/space_twin.hpp"

namespace {

using namespace darlcore;

class byte_reader {
public:
    byte_reader(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
    template <class Number>
    Number take() {
        Number value{};
        const std::size_t taken = std::min(left_, sizeof value);
        if (taken > 0) std::memcpy(&value, data_, taken);
        data_ += taken;
        left_ -= taken;
        return value;
    }

private:
    const std::uint8_t* data_;
    std::size_t left_;
};

// Small enough to write every list out.
constexpr std::uint64_t samples_max = 4096;

void check_against_twin(const epoch_map& map) {
    const testing::epoch_map_twin<> twin(map.parameters(), map.epoch());
    for (std::uint64_t p = 0; p < map.num_blocks(); ++p)
        DARLCORE_ASSERT_CMP(map.block_at(position{p}), ==, twin.block_at(position{p}));
    DARLCORE_ASSERT(map.digest() == twin.digest());
}

void check_order(const epoch_map& map) {
    coverage_audit audit;
    for (std::uint64_t p = 0; p < map.num_blocks(); ++p) {
        const auto windows = map.windows_of(position{p});
        audit.add({windows.begin, windows.end});
        DARLCORE_ASSERT(map.position_of(map.block_at(position{p})) == position{p});
    }
    DARLCORE_ASSERT(audit.report({0, map.parameters().num_samples}).exactly_once());
}

void check_phase(const std::shared_ptr<const epoch_map>& map, byte_reader& in) {
    const batch_shape shape{in.take<std::uint8_t>(), in.take<std::uint8_t>(), in.take<std::uint8_t>()};
    const std::uint64_t cut = in.take<std::uint16_t>() % (map->num_blocks() + 1);
    const auto plan =
        phase_plan::make(map, {{0, {make_span(0, cut)}}, {1, {make_span(cut, map->num_blocks())}}}, shape);
    if (!plan) return;
    std::vector<bool> seen(static_cast<std::size_t>(map->parameters().num_samples), false);
    phase_reader reader(*plan);
    for (std::uint64_t y = 0; y < plan->num_windows(); ++y) {
        const auto w = static_cast<std::size_t>(reader.window_at(y));
        DARLCORE_ASSERT(!seen.at(w));
        seen[w] = true;
    }
    DARLCORE_ASSERT_CMP(plan->num_windows(), ==, map->parameters().num_samples);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    byte_reader in(data, size);
    space_parameters p;
    p.num_samples = in.take<std::uint64_t>();
    p.block_size = in.take<std::uint64_t>();
    p.seed = in.take<std::int64_t>();
    const epoch_index epoch{in.take<std::uint32_t>()};
    const auto flags = in.take<std::uint8_t>();
    p.shuffle = (flags & 1U) != 0;
    p.scheme = (flags & 2U) != 0 ? permutation_scheme::feistel_1 : permutation_scheme::mt_shuffle_1;
    if ((flags & 4U) != 0) p.num_samples %= samples_max + 1;
    if ((flags & 8U) != 0) p.block_size %= 64;
    const auto space = block_space::make(p);
    if (!space) {
        DARLCORE_ASSERT(!space.error().context.empty());
        return 0;
    }
    if (p.num_samples > samples_max && p.scheme != permutation_scheme::feistel_1) return 0;
    const auto map = block_space::build(p, epoch).value();
    if (p.num_samples > samples_max) {
        const position somewhere{static_cast<std::uint64_t>(p.seed) % map->num_blocks()};
        DARLCORE_ASSERT(map->position_of(map->block_at(somewhere)) == somewhere);
        return 0;
    }
    check_order(*map);
    if (p.scheme == permutation_scheme::mt_shuffle_1) check_against_twin(*map);
    check_phase(map, in);
    return 0;
}
