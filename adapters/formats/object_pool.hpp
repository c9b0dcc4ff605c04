// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace darlcore::formats {

/// Objects that a call takes for its time and gives back: as many exist as calls have run at once.
template <class T>
class object_pool {
public:
    /// A free object, or null when all are in use.
    std::unique_ptr<T> take() {
        const std::lock_guard lock(mutex_);
        if (free_.empty()) return nullptr;
        auto object = std::move(free_.back());
        free_.pop_back();
        return object;
    }
    void give_back(std::unique_ptr<T> object) {
        const std::lock_guard lock(mutex_);
        free_.push_back(std::move(object));
    }

private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<T>> free_;
};

}  // namespace darlcore::formats
