// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "darlcore/assert.hpp"

namespace darlcore::lease {

/// A value that copies share until one of them writes.
/// Thread-safety: two copies may be used by two threads, one copy by one thread at a time.
/// Complexity: copy O(1); first write after a copy clones the value.
template <class T>
class cow_ptr {
public:
    cow_ptr() = default;
    cow_ptr(const cow_ptr& other) noexcept : node_(other.node_) {
        if (node_ != nullptr) __atomic_fetch_add(&node_->refs, 1U, __ATOMIC_RELAXED);
    }
    cow_ptr(cow_ptr&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
    cow_ptr& operator=(cow_ptr other) noexcept {
        std::swap(node_, other.node_);
        return *this;
    }
    ~cow_ptr() { drop(); }

    [[nodiscard]] const T* get() const noexcept { return node_ == nullptr ? nullptr : &node_->value; }
    [[nodiscard]] bool is_null() const noexcept { return node_ == nullptr; }

    /// The value, made exclusive first. A null pointer gets a copy of `if_null`.
    T& write(const T& if_null) {
        if (node_ == nullptr) {
            node_ = new node(if_null);
        } else if (__atomic_load_n(&node_->refs, __ATOMIC_ACQUIRE) != 1) {
            node* const mine = new node(node_->value);
            drop();
            node_ = mine;
        }
        return node_->value;
    }
    T& write() { return write(T{}); }
    /// The value where no copy shares it, else null.
    [[nodiscard]] T* exclusive() const noexcept {
        return node_ != nullptr && __atomic_load_n(&node_->refs, __ATOMIC_ACQUIRE) == 1 ? &node_->value : nullptr;
    }
    void reset() noexcept {
        drop();
        node_ = nullptr;
    }
    /// Asks for the counter, so that a copy of many pointers does not wait for each.
    void prefetch() const noexcept { __builtin_prefetch(node_); }

private:
    struct node {
        explicit node(const T& v) : value(v) {}
        std::uint32_t refs = 1;  // counted with the compiler's atomics: a copy may be dropped by another thread
        T value;
    };
    void drop() noexcept {
        if (node_ != nullptr && __atomic_fetch_sub(&node_->refs, 1U, __ATOMIC_ACQ_REL) == 1) delete node_;
    }
    node* node_ = nullptr;
};

/// A fixed-size array in pages that copies share until they write; pages never written hold `fill` and take no memory.
/// Shapes: `size` elements; pages of `PageSize`, directories of 64 pages.
/// Complexity: read and write O(1); copy O(size / (64 * PageSize)); first write to a page after a copy O(PageSize +
/// 64).
template <class T, std::size_t PageSize>
class cow_array {
public:
    static constexpr std::size_t page_size = PageSize;
    static constexpr std::size_t pages_per_directory = 64;
    using page = std::array<T, PageSize>;

    struct directory {
        directory() = default;
        directory(const directory& other) {
            for (const auto& p : other.pages) p.prefetch();
            pages = other.pages;
        }
        directory& operator=(const directory&) = delete;
        ~directory() = default;
        std::array<cow_ptr<page>, pages_per_directory> pages;
    };
    using graveyard = std::vector<cow_ptr<directory>>;

    cow_array() = default;
    explicit cow_array(std::size_t size, const T& fill = T{}) : size_(size), fill_(fill) {
        root_.resize((size + per_directory - 1) / per_directory);
    }

    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    const T& operator[](std::size_t i) const {
        const page* const p = page_at(i / PageSize);
        return p == nullptr ? fill_ : (*p)[i % PageSize];
    }
    T& write(std::size_t i) { return write_page(i / PageSize)[i % PageSize]; }

    /// Page `index`, or null where it was never written.
    [[nodiscard]] const page* page_at(std::size_t index) const {
        const directory* const d = root_[index / pages_per_directory].get();
        return d == nullptr ? nullptr : d->pages[index % pages_per_directory].get();
    }
    page& write_page(std::size_t index) {
        if (directory* const d = root_[index / pages_per_directory].exclusive())
            if (page* const p = d->pages[index % pages_per_directory].exclusive()) return *p;
        return make_exclusive(index);
    }

    /// Makes every element `fill` again. Pages go to `old`, whose owner frees them when there is time.
    void clear(graveyard& old) {
        for (auto& d : root_)
            if (!d.is_null()) old.push_back(std::move(d));
    }
    void grow(std::size_t size) {
        if (size <= size_) return;
        size_ = size;
        root_.resize((size + per_directory - 1) / per_directory);
    }
    /// Pages written so far. Complexity: O(pages).
    [[nodiscard]] std::size_t pages_in_use() const {
        std::size_t n = 0;
        for (const auto& d : root_)
            if (!d.is_null())
                for (const auto& p : d.get()->pages) n += p.is_null() ? 0U : 1U;
        return n;
    }

private:
    static constexpr std::size_t per_directory = PageSize * pages_per_directory;

    [[gnu::noinline]] page& make_exclusive(std::size_t index) {
        auto& slot = root_[index / pages_per_directory];
        directory& d = slot.is_null() ? slot.write(directory{}) : slot.write(*slot.get());
        auto& cell = d.pages[index % pages_per_directory];
        return cell.is_null() ? cell.write(filled()) : cell.write(*cell.get());
    }
    page filled() const {
        page p;
        p.fill(fill_);
        return p;
    }

    std::size_t size_ = 0;
    T fill_{};
    std::vector<cow_ptr<directory>> root_;
};

}  // namespace darlcore::lease
