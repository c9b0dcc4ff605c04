// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "backends/slurm/runner.hpp"

namespace slurm_test {

/// A folder of its own, with executables that stand in for the batch system; removed at the end.
class stub_folder {
public:
    stub_folder() {
        std::string pattern = (std::filesystem::temp_directory_path() / "darl-slurm-XXXXXX").string();
        path_ = ::mkdtemp(pattern.data());
    }
    stub_folder(const stub_folder&) = delete;
    stub_folder& operator=(const stub_folder&) = delete;
    ~stub_folder() { std::filesystem::remove_all(path_); }

    void program(const std::string& name, const std::string& body) const {
        const std::string file = path_ + "/" + name;
        std::ofstream(file) << "#!/bin/sh\n" << body << "\n";
        ::chmod(file.c_str(), 0755);
    }
    [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
    [[nodiscard]] std::string read(const std::string& name) const {
        std::ifstream in(file(name), std::ios::binary);
        return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    }
    /// An environment in which the stubs are found first.
    [[nodiscard]] std::vector<std::string> environment() const {
        return {"PATH=" + path_ + ":/usr/bin:/bin",
                "HOME=/",
                "SLURM_JOB_ID=7",
                "SBATCH_ACCOUNT=other",
                "DARL_TOKEN=secret",
                "SLURM_CONF=/x/slurm.conf",
                "TZ=Europe/Amsterdam"};
    }

private:
    std::string path_;
};

}  // namespace slurm_test
