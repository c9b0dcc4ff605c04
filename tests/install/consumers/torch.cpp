// SPDX-License-Identifier: Apache-2.0
#include "backends/torch/language_model.hpp"

int main() {
    auto config = darlcore::models::flavour("debug-1m", 16);
    if (!config.has_value()) return 1;
    auto model = darlcore::models::language_model::create(*config, 7);
    if (!model.has_value()) return 1;
    const std::int64_t ids[] = {1, 2, 3};
    const auto logits = model->logits(ids);
    return logits.has_value() && logits->size() == 3 * 16 ? 0 : 1;
}
