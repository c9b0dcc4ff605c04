// SPDX-License-Identifier: Apache-2.0
// A site whose only way to the server is a forward proxy or a slow link.
#include <poll.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/asio/certificate.hpp"
#include "tests/asio/serve_fixture.hpp"
#include "tests/cli/relay.hpp"

namespace {

using namespace darlcore;
using darl::testing::relay;
using http::testing::served;
using http::testing::temporary_folder;

struct geometry {
    std::uint64_t blocks = 24;
    std::uint64_t block_size = 10'000;
    std::string ttl_s = "4";
    std::string seconds_per_window = "0.000001";
    [[nodiscard]] std::string windows() const { return std::to_string(blocks * block_size); }
};

std::vector<std::string> server_arguments(const geometry& g) {
    return {"--num-samples",
            g.windows(),
            "--block-size",
            std::to_string(g.block_size),
            "--seed",
            "1",
            "--outer.eta=1",
            "--outer.beta=0",
            "--round.keep_generations=990",
            "--lease.min_ttl_s=1",
            "--lease.default_ttl_s=" + g.ttl_s,
            "--round.live_window_s=10",
            "--round.keepalive_s=0.5",
            "--round.round_limit_s=60",
            "--train.inner_steps=1",
            "--eval.every=0"};
}

/// Runs a whole site process; gives its exit code.
int run_site(const geometry& g, const temporary_folder& folder, const std::string& server,
             const std::string& proxy = "none") {
    darl::child_process::options o;
    o.argv = {DARL_PROGRAM,
              "simulate-site",
              "--server",
              server,
              "--site",
              "alpha",
              "--dir",
              folder / "alpha",
              "--num-samples",
              g.windows(),
              "--block-size",
              std::to_string(g.block_size),
              "--seed",
              "1",
              "--seconds-per-window",
              g.seconds_per_window,
              "--proxy",
              proxy};
    if (server.starts_with("https")) o.argv.insert(o.argv.end(), {"--ca-file", folder / "server.pem"});
    o.stderr_file = folder / "alpha.log";
    auto site = darl::child_process::start(o);
    return site ? site->wait(std::chrono::seconds(200)).value_or(-1) : -1;
}

std::string text_of(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

struct traffic {
    std::uint64_t rounds = 0;
    std::uint64_t payload = 0;
};

/// What had to cross the wire: the first weights, a delta per round (of the size of the weights), each generation's
/// wire copy.
traffic traffic_of(const std::string& state) {
    traffic t;
    for (const auto& entry : std::filesystem::directory_iterator(state + "/model")) {
        if (!entry.is_directory() || entry.path().filename().string().rfind("gen-", 0) != 0) continue;
        ++t.rounds;
        t.payload += std::filesystem::file_size(entry.path() / "global.safetensors") +
                     std::filesystem::file_size(entry.path() / "wire.safetensors");
    }
    return t;
}

struct proxy_program {
    const char* path;
    std::vector<std::string> (*command)(const temporary_folder& folder, std::uint16_t port);
};

/// Cuts every connection that is idle for a second.
std::vector<std::string> tinyproxy(const temporary_folder& folder, std::uint16_t port) {
    std::ofstream(folder / "tiny.conf") << "Port " << port << "\nListen 127.0.0.1\nTimeout 1\nMaxClients 50\n";
    return {"/usr/bin/tinyproxy", "-d", "-c", folder / "tiny.conf"};
}

/// Cuts connections that are idle for a second, and tunnels that are idle for two.
std::vector<std::string> squid(const temporary_folder& folder, std::uint16_t port) {
    std::filesystem::create_directories(folder / "squid");
    std::filesystem::permissions(folder / "squid", std::filesystem::perms::all);
    std::filesystem::permissions(folder / "", std::filesystem::perms::all);
    const std::string own = folder / "squid";
    std::ofstream(folder / "squid.conf")
        << "http_port 127.0.0.1:" << port << "\nhttp_access allow all\ncache deny all\naccess_log none\n"
        << "pid_filename " << own << "/pid\ncache_log " << own << "/log\ncoredump_dir " << own
        << "\nclient_idle_pconn_timeout 1 second\nread_timeout 2 seconds\nshutdown_lifetime 0 seconds\npinger_enable "
           "off\nvisible_hostname proxy\n"
        << "max_filedescriptors 1024\ncache_mem 8 MB\nnetdb_filename none\n";
    return {"/usr/sbin/squid", "-N", "-f", folder / "squid.conf"};
}

/// With TLS the proxy is asked for a tunnel (CONNECT), else for each URL.
void a_site_completes_a_run_behind(const proxy_program& program, bool with_tls) {
    if (!std::filesystem::exists(program.path)) GTEST_SKIP() << program.path << " is not installed";
    const temporary_folder folder;
    geometry g;
    g.seconds_per_window = "0.00003";  // a phase of 2.4 s: its connections are idle meanwhile
    auto arguments = server_arguments(g);
    if (with_tls) {
        ASSERT_NO_FATAL_FAILURE(http::testing::make_certificate(folder, "server"));
        arguments.insert(arguments.end(),
                         {"--tls-certificate", folder / "server.pem", "--tls-key", folder / "server.key"});
    }
    served server(folder / "state", arguments);
    ASSERT_TRUE(server.up()) << server.log();
    std::optional<darl::child_process> proxy;
    std::uint16_t port = 0;
    for (int attempt = 0; attempt < 5 && !(proxy && proxy->running()); ++attempt) {
        port = darl::testing::free_port();
        darl::child_process::options o;
        o.argv = program.command(folder, port);
        o.stderr_file = folder / "proxy.log";
        auto started = darl::child_process::start(o);
        ASSERT_TRUE(started) << to_text(started.error());
        proxy.emplace(*std::move(started));
        while (proxy->running() && !darl::testing::answers(port)) ::poll(nullptr, 0, 20);
    }
    ASSERT_TRUE(proxy->running()) << text_of(folder / "proxy.log");
    const relay wire(port);
    // 0.0.0.0 reaches this machine but is no loopback name, for which no proxy would be used
    const int code =
        run_site(g, folder, (with_tls ? "https://0.0.0.0:" : "http://0.0.0.0:") + std::to_string(server.port()),
                 "http://127.0.0.1:" + std::to_string(wire.port()));
    ASSERT_EQ(code, 0) << text_of(folder / "alpha.log") << text_of(folder / "proxy.log");
    client::client_options direct;
    direct.base_url = server.url();
    direct.ca_file = with_tls ? folder / "server.pem" : std::string();
    auto client = client::http_client::make(direct).value();
    EXPECT_EQ(http::testing::get(client, "/status").body.at("committed").as_u64(), g.blocks);
    EXPECT_GE(wire.connections(), 6U) << "each of the three was cut and made again";
    const traffic t = traffic_of(folder / "state");
    ASSERT_GE(t.rounds, 2U);
    EXPECT_GT(wire.bytes(), t.payload * 9 / 10) << "all of it went through the proxy";
    EXPECT_LE(static_cast<double>(wire.bytes()),
              1.02 * static_cast<double>(t.payload) + 200'000.0 * static_cast<double>(t.rounds))
        << t.payload << " bytes of payload in " << t.rounds << " rounds";
}

TEST(a_site_behind_a_proxy, completes_a_run_through_tinyproxy) {
    a_site_completes_a_run_behind({"/usr/bin/tinyproxy", &tinyproxy}, false);
}

TEST(a_site_behind_a_proxy, completes_a_run_over_tls_through_tinyproxy_that_cuts_idle_tunnels) {
    a_site_completes_a_run_behind({"/usr/bin/tinyproxy", &tinyproxy}, true);
}

TEST(a_site_behind_a_proxy, completes_a_run_through_squid_that_cuts_idle_connections) {
    a_site_completes_a_run_behind({"/usr/sbin/squid", &squid}, false);
}

TEST(a_site_behind_a_proxy, completes_a_run_over_tls_through_squid_that_cuts_idle_tunnels) {
    a_site_completes_a_run_behind({"/usr/sbin/squid", &squid}, true);
}

// 10 Mbit/s: a delta takes longer than a lease lives.
TEST(a_site_behind_a_slow_link, keeps_every_lease_alive_while_it_moves_weights) {
    const temporary_folder folder;
    const geometry g{8, 176'000, "4"};
    served server(folder / "state", server_arguments(g));
    ASSERT_TRUE(server.up()) << server.log();
    constexpr double rate = 10e6 / 8;
    ASSERT_GT(static_cast<double>(g.blocks * g.block_size * 4) / rate, 4.0 * 1.1);
    const relay link(server.port(), rate);
    const int code = run_site(g, folder, "http://127.0.0.1:" + std::to_string(link.port()));
    ASSERT_EQ(code, 0) << text_of(folder / "alpha.log");
    auto client = server.client();
    const auto status = http::testing::get(client, "/status").body;
    EXPECT_EQ(status.at("committed").as_u64(), g.blocks);
    EXPECT_EQ(status.at("clusters").at("alpha").at("expiries").as_u64(), 0U) << json::dump(status);
}

}  // namespace
