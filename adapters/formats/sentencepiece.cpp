// SPDX-License-Identifier: Apache-2.0
#include "adapters/formats/sentencepiece.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include <simdjson.h>

#include "adapters/formats/object_pool.hpp"
#include "adapters/formats/sha256_stream.hpp"
#include "adapters/formats/spm_protocol.hpp"
#include "adapters/formats/utf8.hpp"

namespace darlcore::formats {

namespace {

result<std::string> helper_path() {
    const char* named = std::getenv("DARL_SPM");
    if (named != nullptr && *named != '\0') return std::string(named);
    std::error_code ec;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", ec);
    const auto beside = self.parent_path() / "darl-spm";
    if (!ec && std::filesystem::exists(beside, ec)) return beside.string();
    return fail(errc::unsupported,
                "SentencePiece models need the program darl-spm beside this one or in $DARL_SPM; install "
                "libsentencepiece-dev and build again");
}

// A helper process and the socket to it; both end with the object.
class helper {
public:
    explicit helper(int socket, pid_t pid) : socket_(socket), pid_(pid) {}
    helper(const helper&) = delete;
    helper& operator=(const helper&) = delete;
    ~helper() {
        ::close(socket_);
        int status = 0;
        while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
        }
    }

    static result<std::unique_ptr<helper>> start(const std::string& program) {
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
            return fail(errc::io_error, std::string("cannot make a socket: ") + std::strerror(errno));
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
        std::string name = program;
        char* arguments[] = {name.data(), nullptr};
        pid_t pid = -1;
        const int code = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
        ::close(ends[1]);
        if (code == 0) return std::make_unique<helper>(ends[0], pid);
        ::close(ends[0]);
        return fail(errc::io_error, program + ": cannot be started: " + std::strerror(code));
    }

    // Errors: errc::corrupt when the helper has ended, errc::parse_error with its sentence when it refuses.
    result<std::string> ask(char what, std::string_view body) {
        spm::frame told;
        if (!spm::send_frame(socket_, what, body) || !spm::receive_frame(socket_, told)) {
            broken_ = true;
            return fail(errc::corrupt, "the helper darl-spm ended: the model is damaged or memory ran out");
        }
        if (told.what != spm::done) return fail(errc::parse_error, "SentencePiece refuses: " + told.body);
        return std::move(told.body);
    }
    [[nodiscard]] bool broken() const { return broken_; }

private:
    int socket_;
    pid_t pid_;
    bool broken_ = false;
};

class sentencepiece_tokenizer final : public tokenizer {
public:
    sentencepiece_tokenizer(std::string model, std::string name, std::string program)
        : model_(std::move(model)), name_(std::move(name)), program_(std::move(program)) {
        sha256_stream hash;
        hash.update(std::as_bytes(std::span(model_)));
        sha256_ = hash.finish_hex();
    }

    [[nodiscard]] std::string name() const override { return name_; }
    [[nodiscard]] std::string sha256() const override { return sha256_; }
    [[nodiscard]] std::uint64_t vocab_size() const override { return padded_vocab_size(pieces_); }
    [[nodiscard]] std::optional<std::uint32_t> bos_id() const override { return bos_; }
    [[nodiscard]] std::optional<std::uint32_t> eos_id() const override { return eos_; }
    [[nodiscard]] bool needs_utf8() const override { return true; }

    [[nodiscard]] result<void> encode(std::string_view text, std::vector<std::uint32_t>& ids) const override {
        if (!simdjson::validate_utf8(text.data(), text.size()))
            return fail(errc::parse_error,
                        "invalid UTF-8 at byte " + std::to_string(first_invalid_utf8(text).value_or(text.size())));
        if (text.size() > spm::body_bytes_max) return fail(errc::too_large, "a text above 2 GiB; split the document");
        const auto told = ask(spm::encode, text);
        if (!told) return told.error();
        const std::size_t before = ids.size();
        ids.resize(before + told->size() / sizeof(std::uint32_t));
        std::memcpy(ids.data() + before, told->data(), (ids.size() - before) * sizeof(std::uint32_t));
        return {};
    }

    [[nodiscard]] result<std::string> decode(std::span<const std::uint32_t> ids) const override {
        std::string body;
        for (const std::uint32_t id : ids) {
            if (id >= vocab_size())
                return fail(errc::invalid_argument, "id " + std::to_string(id) + " is beyond the " +
                                                        std::to_string(vocab_size()) + " of " + name_);
            if (id < pieces_) body.append(reinterpret_cast<const char*>(&id), sizeof id);
        }
        return ask(spm::decode, body);
    }

    // Loads the model once to see that it is one. Errors: those of open_sentencepiece, without the file's name.
    result<void> prepare(const tokenizer_settings& settings) {
        auto first = started();
        if (!first) return first.error();
        const auto bos = end_id(**first, "--bos", settings.bos, facts_.bos);
        if (!bos) return bos.error();
        const auto eos = end_id(**first, "--eos", settings.eos, facts_.eos);
        if (!eos) return eos.error();
        bos_ = *bos;
        eos_ = *eos;
        pieces_ = static_cast<std::uint32_t>(facts_.pieces);
        free_.give_back(*std::move(first));
        return {};
    }

private:
    // A helper that has loaded the model; the first one tells its facts.
    result<std::unique_ptr<helper>> started() const {
        auto made = helper::start(program_);
        if (!made) return made;
        const auto told = (*made)->ask(spm::load, model_);
        if (!told) return fail(told.error().code, told.error().context + "; copy the model again");
        if (told->size() != sizeof facts_) return fail(errc::internal, "darl-spm is of another version");
        spm::model_facts facts;
        std::memcpy(&facts, told->data(), sizeof facts);
        if (facts.pieces <= 0) return fail(errc::parse_error, "the model has no pieces; copy it again");
        if (pieces_ == 0) facts_ = facts;
        return made;
    }

    static result<std::optional<std::uint32_t>> end_id(helper& h, const char* option, const std::string& asked,
                                                       std::int32_t own) {
        using id = std::optional<std::uint32_t>;
        if (asked == "none" || (asked.empty() && own < 0)) return id();
        if (asked.empty()) return id(static_cast<std::uint32_t>(own));
        const auto told = h.ask(spm::piece, asked);
        std::uint32_t found = 0;
        if (!told || told->size() != sizeof found)
            return fail(errc::invalid_argument, std::string(option) + ": `" + asked +
                                                    "` is no piece of the model; name one that is, or `none`");
        std::memcpy(&found, told->data(), sizeof found);
        return id(found);
    }

    result<std::string> ask(char what, std::string_view body) const {
        auto h = free_.take();
        if (!h) {
            auto made = started();
            if (!made) return made.error();
            h = *std::move(made);
        }
        auto told = h->ask(what, body);
        if (!h->broken()) free_.give_back(std::move(h));
        return told;
    }

    std::string model_;
    std::string name_;
    std::string program_;
    std::string sha256_;
    std::uint32_t pieces_ = 0;  // 0 until prepared
    std::optional<std::uint32_t> bos_;
    std::optional<std::uint32_t> eos_;
    mutable spm::model_facts facts_;  // written by prepare only
    mutable object_pool<helper> free_;
};

}  // namespace

result<std::unique_ptr<tokenizer>> open_sentencepiece(std::string model, const std::string& name,
                                                      const tokenizer_settings& settings) {
    auto program = helper_path();
    if (!program) return fail(program.error().code, name + ": " + program.error().context);
    auto t = std::make_unique<sentencepiece_tokenizer>(std::move(model), name.substr(name.rfind('/') + 1),
                                                       *std::move(program));
    if (const auto ok = t->prepare(settings); !ok) return fail(ok.error().code, name + ": " + ok.error().context);
    return std::unique_ptr<tokenizer>(std::move(t));
}

}  // namespace darlcore::formats
