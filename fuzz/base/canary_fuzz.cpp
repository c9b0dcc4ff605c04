// SPDX-License-Identifier: Apache-2.0
// A planted bug that coverage-guided fuzzing must find within seconds: a fuzzing set-up that cannot, finds nothing else
// either. The replay corpus holds harmless inputs only.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static constexpr char word[] = "darl!";
    for (std::size_t i = 0; i < sizeof word - 1; ++i)
        if (i >= size || data[i] != static_cast<std::uint8_t>(word[i])) return 0;
    std::abort();
}
