// SPDX-License-Identifier: Apache-2.0
#include "adapters/cli/train_inputs.hpp"

#include <charconv>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "adapters/formats/sha256_stream.hpp"
#include "adapters/formats/token_corpus.hpp"
#include "backends/torch/image_source.hpp"
#include "backends/torch/token_source.hpp"
#include "darlcore/hex.hpp"

namespace darl {
namespace {

using namespace darlcore;

using shared_corpus = std::shared_ptr<const formats::token_corpus>;

template <class Digest>
std::string hex(const Digest& digest) {
    return to_hex(std::span<const std::uint8_t>(digest));
}

error not_set(const char* key) {
    return fail(errc::invalid_argument,
                fmt::format("{} is not set; 'darl tokenize' writes a manifest to name there", key));
}

result<shared_corpus> open_corpus(const std::string& path, const char* key) {
    if (path.empty()) return not_set(key);
    auto corpus = formats::token_corpus::open(path);
    if (!corpus) return corpus.error();
    return shared_corpus(std::make_shared<const formats::token_corpus>(*std::move(corpus)));
}

training::trainer_settings common_settings(const run_config& c) {
    training::trainer_settings t;
    t.seed = c.seed;
    t.batch = static_cast<std::uint64_t>(c.batch);
    t.accumulate = static_cast<std::uint64_t>(c.accumulate);
    t.schedule = schedule_of(c);
    t.beta1 = c.beta1;
    t.beta2 = c.beta2;
    t.eps = c.eps;
    t.weight_decay = c.weight_decay;
    t.clip_norm = c.clip;
    return t;
}

result<site_parts> open_tokens(const run_config& c) {
    site_parts out;
    auto corpus = open_corpus(c.manifest, "data.manifest");
    if (!corpus) return corpus.error();
    const auto& manifest = (*corpus)->manifest();
    out.settings = common_settings(c);
    auto model = models::flavour(c.flavour, static_cast<std::int64_t>((manifest.vocab_size + 255) / 256 * 256));
    if (!model) return model.error();
    out.settings.model = *model;
    out.settings.seq_len = manifest.seq_len;
    out.num_windows = manifest.num_windows;
    out.identity = hex((*corpus)->identity());
    out.content = [corpus = *corpus]() -> result<std::string> {
        const auto content = corpus->content();
        if (!content) return content.error();
        return hex(*content);
    };
    auto windows = training::token_source(*corpus, model->vocab_size);
    if (!windows) return windows.error();
    out.windows = *std::move(windows);
    if (c.held_out.empty()) return out;
    auto held_out = open_corpus(c.held_out, "data.held_out");
    if (!held_out) return held_out.error();
    const auto content = (*held_out)->content();
    if (!content) return content.error();
    out.held_out_digest = hex(*content);
    auto source = training::token_source(*held_out, model->vocab_size);
    if (!source) return source.error();
    out.held_out = *std::move(source);
    return out;
}

std::vector<std::string> split(std::string_view text) {
    std::vector<std::string> out;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t comma = std::min(text.find(',', at), text.size());
        out.emplace_back(text.substr(at, comma - at));
        at = comma + 1;
    }
    return out;
}

std::optional<std::uint64_t> number_in(const std::string& text) {
    std::uint64_t out = 0;
    const char* const end = text.data() + text.size();
    if (text.empty() || std::from_chars(text.data(), end, out).ptr != end) return std::nullopt;
    return out;
}

using pictures = std::unique_ptr<training::window_source>;

result<pictures> open_pictures(const std::string& text, const char* key) {
    const std::size_t colon = text.find(':');
    const std::string kind = text.substr(0, colon);
    const auto parts = split(colon == std::string::npos ? std::string() : text.substr(colon + 1));
    if (kind == "cifar10") return training::cifar10_source(parts);
    if (kind == "idx" && parts.size() == 2) return training::idx_source(parts[0], parts[1]);
    if (kind == "idx" && parts.size() == 3)
        if (const auto count = number_in(parts[2]); count.value_or(0) > 0U)
            return training::idx_source(parts[0], parts[1], *count);
    if (kind == "patterns" && parts.size() == 2) {
        const auto count = number_in(parts[0]);
        const auto seed = number_in(parts[1]);
        if (count.value_or(0) > 0U && seed) return training::pattern_source(*count, static_cast<std::int64_t>(*seed));
    }
    return fail(errc::invalid_argument,
                fmt::format("{} = \"{}\": with resnet18 it is \"cifar10:FILE,FILE...\", \"idx:IMAGES,LABELS\" (or with "
                            "\",COUNT\" the first ones) or \"patterns:COUNT,SEED\"",
                            key, text));
}

// Digest of all records in order.
result<std::string> digest_of(const training::window_source& source) {
    formats::sha256_stream sum;
    std::vector<std::byte> record(source.window_bytes());
    for (std::uint64_t i = 0; i < source.num_windows(); ++i) {
        if (auto read = source.read(i, record); !read) return read.error();
        sum.update(record);
    }
    return sum.finish_hex();
}

result<site_parts> open_image_parts(const run_config& c) {
    site_parts out;
    out.settings = common_settings(c);
    out.settings.model.kind = models::architecture::resnet18;
    out.settings.seq_len = 1;
    out.settings.optimiser = training::optimiser_choice::sgd_nesterov;
    auto windows = open_pictures(c.manifest, "data.manifest");
    if (!windows) return windows.error();
    out.windows = *std::move(windows);
    out.num_windows = out.windows->num_windows();
    const auto content = digest_of(*out.windows);
    if (!content) return content.error();
    out.identity = content->substr(0, 32);
    out.content = [digest = *content]() -> result<std::string> { return digest; };
    if (c.held_out.empty()) return out;
    auto held_out = open_pictures(c.held_out, "data.held_out");
    if (!held_out) return held_out.error();
    const auto digest = digest_of(**held_out);
    if (!digest) return digest.error();
    out.held_out_digest = *digest;
    out.held_out = *std::move(held_out);
    return out;
}

}  // namespace

training::lr_schedule schedule_of(const run_config& c) {
    training::lr_schedule s;
    s.peak = c.peak_lr;
    s.warmup_steps = static_cast<std::uint64_t>(c.warmup_steps);
    s.total_steps = c.total_steps > 0 ? static_cast<std::uint64_t>(c.total_steps) : std::uint64_t{1} << 40U;
    s.decay_fraction = c.total_steps > 0 ? c.decay_fraction : 0;
    s.floor_fraction = c.min_lr_factor;
    return s;
}

space_parameters space_of(const run_config& c, std::uint64_t num_windows) {
    space_parameters s;
    s.num_samples = num_windows;
    s.block_size = static_cast<std::uint64_t>(c.block_size);
    s.seed = c.seed;
    return s;
}

result<site_parts> open_parts(const run_config& c) {
    if (c.manifest.empty()) return not_set("data.manifest");
    return c.flavour == "resnet18" ? open_image_parts(c) : open_tokens(c);
}

}  // namespace darl
