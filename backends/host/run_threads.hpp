// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace darlcore::host {

/// Runs `work` on the calling thread and on up to threads - 1 others; returns when all are done. When the system has no
/// thread or memory left, fewer run: `work` must take what there is to do from a shared counter.
template <class Work>
void run_on_threads(int threads, const Work& work) {
    std::vector<std::thread> helpers;
    try {
        helpers.reserve(static_cast<std::size_t>(threads > 1 ? threads - 1 : 0));
        for (int t = 1; t < threads; ++t) helpers.emplace_back([&work] { work(); });
    } catch (const std::system_error&) {
        // fewer helpers do the same work
    } catch (const std::bad_alloc&) {
        // likewise
    }
    work();
    for (std::thread& helper : helpers) helper.join();
}

}  // namespace darlcore::host
