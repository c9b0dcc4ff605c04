// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace darlcore::lease {

/// A list that grows page by page: no element ever moves, and no append copies more than the list of its pages.
/// Complexity: access and append O(1), in the worst case O(size / PageSize) pointers; copy O(size).
template <class T, std::size_t PageSize = 256>
class paged_vector {
public:
    paged_vector() = default;
    paged_vector(const paged_vector& other) : size_(other.size_) {
        pages_.reserve(other.pages_.size());
        for (const auto& p : other.pages_) pages_.push_back(std::make_unique<page>(*p));
    }
    paged_vector(paged_vector&& other) noexcept
        : size_(std::exchange(other.size_, 0)), pages_(std::move(other.pages_)) {}
    paged_vector& operator=(paged_vector other) noexcept {
        std::swap(size_, other.size_);
        pages_.swap(other.pages_);
        return *this;
    }
    ~paged_vector() = default;

    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    T& operator[](std::size_t i) { return (*pages_[i / PageSize])[i % PageSize]; }
    const T& operator[](std::size_t i) const { return (*pages_[i / PageSize])[i % PageSize]; }
    [[nodiscard]] const T& front() const { return (*this)[0]; }
    [[nodiscard]] const T& back() const { return (*this)[size_ - 1]; }

    void push_back(const T& value) {
        if (size_ == pages_.size() * PageSize) pages_.push_back(std::make_unique<page>());
        (*this)[size_++] = value;
    }
    void pop_back() noexcept { --size_; }
    /// Keeps its pages for what comes next.
    void clear() noexcept { size_ = 0; }
    void resize(std::size_t size, const T& value = T{}) {
        while (size_ < size) push_back(value);
        size_ = size;
    }
    [[nodiscard]] std::size_t bytes() const {
        return pages_.size() * (sizeof(page) + 16) + pages_.capacity() * sizeof(pages_.front());
    }

private:
    using page = std::array<T, PageSize>;
    std::size_t size_ = 0;
    std::vector<std::unique_ptr<page>> pages_;
};

}  // namespace darlcore::lease
