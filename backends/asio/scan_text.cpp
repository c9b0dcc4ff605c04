// SPDX-License-Identifier: Apache-2.0
#include "backends/asio/scan_text.hpp"

#include "adapters/formats/json.hpp"
#include "backends/asio/wire_fields.hpp"

namespace darlcore::http {

namespace {

std::string layout_text(const std::array<std::uint8_t, 16>& digest) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string out;
    for (const std::uint8_t b : digest) {
        out.push_back(digits[b >> 4U]);
        out.push_back(digits[b & 15U]);
    }
    return out;
}

std::optional<std::array<std::uint8_t, 16>> parse_layout(std::string_view text) {
    const auto value = parse_incarnation(text);  // 32 hex digits
    if (!value) return std::nullopt;
    std::array<std::uint8_t, 16> out{};
    for (unsigned i = 0; i < 8; ++i) {
        out[i] = static_cast<std::uint8_t>(value->high >> (56U - 8U * i));
        out[8 + i] = static_cast<std::uint8_t>(value->low >> (56U - 8U * i));
    }
    return out;
}

}  // namespace

std::string scan_text(const ledger::blob_facts& facts) {
    json::value out = json::make_object({{"bytes", wire::count(facts.bytes)}});
    if (facts.layout_digest) out.set("layout_digest", layout_text(*facts.layout_digest));
    if (facts.scan) {
        out.set("finite", facts.scan->finite);
        out.set("max_abs", static_cast<double>(facts.scan->max_abs));
        out.set("sum_squares", facts.scan->sum_squares);
    }
    if (facts.metadata) {
        const contribution_claim& m = *facts.metadata;
        out.set("metadata", json::make_object({{"run_id", m.run_id},
                                               {"site", m.site.name},
                                               {"base_generation", wire::count(m.base_generation.count)},
                                               {"tokens", wire::count(m.tokens)},
                                               {"steps", wire::count(m.steps)}}));
    }
    return json::dump(out);
}

result<ledger::blob_facts> parse_scan_text(std::string_view text) {
    const auto parsed = json::parse(text);
    if (!parsed) return fail(errc::corrupt, "the findings about a blob are not JSON");
    wire::field_reader in(*parsed);
    ledger::blob_facts facts;
    facts.bytes = in.whole("bytes", 0);
    if (in.member("layout_digest") != nullptr) facts.layout_digest = parse_layout(in.text("layout_digest", 64));
    if (in.member("finite") != nullptr)
        facts.scan = delta_scan{in.flag("finite"), static_cast<float>(in.number("max_abs")), in.number("sum_squares")};
    if (const json::value* m = in.member("metadata")) {
        wire::field_reader meta(*m);
        contribution_claim claim;
        claim.run_id = meta.text("run_id", 256);
        claim.site = {meta.text("site", 256)};
        claim.base_generation = generation{meta.whole("base_generation", 0)};
        claim.tokens = meta.whole("tokens", 0);
        claim.steps = meta.whole("steps", 0);
        facts.metadata = claim;
        if (!meta.ok()) in.fail("metadata", "the claim of a contribution");
    }
    if (!in.ok()) return fail(errc::corrupt, "the findings about a blob: " + in.fault().context);
    return facts;
}

}  // namespace darlcore::http
