// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "adapters/cli/child_process.hpp"
#include "tests/asio/serve_fixture.hpp"

namespace darlcore::http::testing {

/// A certificate of its own authority for this machine: NAME.pem and NAME.key in the folder.
inline void make_certificate(const temporary_folder& folder, const std::string& name) {
    darl::child_process::options o;
    o.argv = {"/usr/bin/openssl",
              "req",
              "-x509",
              "-newkey",
              "rsa:2048",
              "-nodes",
              "-days",
              "2",
              "-subj",
              "/CN=" + name,
              "-addext",
              "subjectAltName=IP:127.0.0.1,IP:0.0.0.0",
              "-keyout",
              folder / (name + ".key"),
              "-out",
              folder / (name + ".pem")};
    o.stderr_file = folder / "openssl.log";
    auto child = darl::child_process::start(o);
    ASSERT_TRUE(child);
    ASSERT_EQ(child->wait(std::chrono::seconds(60)).value_or(-1), 0);
}

}  // namespace darlcore::http::testing
