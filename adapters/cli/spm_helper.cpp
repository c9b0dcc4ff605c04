// SPDX-License-Identifier: Apache-2.0
// `darl-spm`: SentencePiece in a process of its own, because Debian's library and libtorch bring two protobuf libraries
// that do not live in one process (docs/adr/0009). Speaks spm_protocol.hpp over the socket that is its standard input;
// started by `darl`, of no use by hand.
#include <cstring>
#include <string>
#include <vector>

#include <sentencepiece_processor.h>

#include "adapters/formats/spm_protocol.hpp"

namespace {

namespace spm = darlcore::formats::spm;
using sentencepiece::SentencePieceProcessor;

template <class T>
std::string bytes_of(const T* data, std::size_t count) {
    return {reinterpret_cast<const char*>(data), count * sizeof(T)};
}

spm::frame refuse(const std::string& why) { return {spm::failed, why}; }

spm::frame load(SentencePieceProcessor& model, const std::string& bytes) {
    const auto status = model.LoadFromSerializedProto(bytes);
    if (!status.ok()) return refuse(status.ToString());
    const spm::model_facts facts{model.GetPieceSize(), model.bos_id(), model.eos_id()};
    return {spm::done, bytes_of(&facts, 1)};
}

spm::frame encode(const SentencePieceProcessor& model, const std::string& text) {
    std::vector<int> ids;
    const auto status = model.Encode(text, &ids);
    if (!status.ok()) return refuse(status.ToString());
    return {spm::done, bytes_of(ids.data(), ids.size())};
}

spm::frame decode(const SentencePieceProcessor& model, const std::string& body) {
    std::vector<int> ids(body.size() / sizeof(int));
    std::memcpy(ids.data(), body.data(), ids.size() * sizeof(int));
    std::string text;
    const auto status = model.Decode(ids, &text);
    if (!status.ok()) return refuse(status.ToString());
    return {spm::done, text};
}

spm::frame piece(const SentencePieceProcessor& model, const std::string& name) {
    const int id = model.PieceToId(name);
    if (model.IdToPiece(id) != name) return refuse("no such piece");
    return {spm::done, bytes_of(&id, 1)};
}

spm::frame answer(SentencePieceProcessor& model, const spm::frame& asked) {
    if (asked.what == spm::load) return load(model, asked.body);
    if (!model.status().ok()) return refuse("no model is loaded");
    if (asked.what == spm::encode) return encode(model, asked.body);
    if (asked.what == spm::decode) return decode(model, asked.body);
    if (asked.what == spm::piece) return piece(model, asked.body);
    return refuse("unknown request");
}

}  // namespace

int main() {
    SentencePieceProcessor model;
    spm::frame asked;
    while (spm::receive_frame(0, asked)) {
        const spm::frame told = answer(model, asked);
        if (!spm::send_frame(0, told.what, told.body)) return 1;
    }
    return 0;
}
