#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "folder.h"
#include "trace/descriptor.h"
#include "trace/sink.h"

namespace gpumemtrace {
namespace {

namespace fs = std::filesystem;

int error_of(const std::string& path, bool overwrite) {
  try {
    const FileSink sink(path, overwrite);
    return 0;
  } catch (const std::system_error& error) {
    return error.code().value();
  }
}

}  // namespace

TEST_CASE("a closed stdin, stdout or stderr is never the trace") {
  const Folder folder;
  const int kept = ::dup(STDIN_FILENO);
  ::close(STDIN_FILENO);
  {
    FileSink sink(folder / "a.gmt", false);
    CHECK(::fcntl(STDIN_FILENO, F_GETFD) == -1);
    CHECK(sink.write("hello", 5));
  }
  ::dup2(kept, STDIN_FILENO);
  ::close(kept);
  CHECK(content(folder / "a.gmt") == "hello");
}

TEST_CASE("a file is never replaced unless asked, and never through a link") {
  const Folder folder;
  const std::string path = folder / "a.gmt";
  {
    FileSink sink(path, false);
    CHECK(sink.write("hello", 5));
    CHECK(sink.close());
    CHECK(sink.close());
    CHECK_FALSE(sink.write("more", 4));
    CHECK(sink.error_number() == EBADF);
  }
  CHECK(error_of(path, false) == EEXIST);
  CHECK(content(path) == "hello");
  fs::create_symlink(path, folder / "link.gmt");
  CHECK(error_of(folder / "link.gmt", false) == EEXIST);
  CHECK(error_of(folder / "link.gmt", true) == ELOOP);
  CHECK(content(path) == "hello");
  CHECK(error_of(path, true) == 0);
  CHECK(content(path).empty());
}

TEST_CASE("two that are told to overwrite one name do not write into one file") {
  const Folder folder;
  const std::string path = folder / "a.gmt";
  FileSink first(path, true);
  CHECK(first.write("first", 5));
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  FileSink second(path, true);
  CHECK(second.write("2", 1));
  CHECK(first.write("more", 4));
  CHECK(content(path) == "2");
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  REQUIRE(::fstat(first.descriptor(), &status) == 0);
  CHECK(status.st_nlink == 0);  // which the first one notices
}

TEST_CASE("a file that can't be made says why") {
  const Folder folder;
  CHECK(error_of(folder / "no/such/folder.gmt", false) == ENOENT);
  CHECK(error_of(folder / ".", true) == EISDIR);
}

TEST_CASE("the user's umask decides who may read the trace") {
  const Folder folder;
  const mode_t before = ::umask(027);
  CHECK(error_of(folder / "a.gmt", false) == 0);
  ::umask(before);
  struct stat status {};
  REQUIRE(::stat((folder / "a.gmt").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0640);
}

TEST_CASE("a full disk is an error that stays") {
  if (::access("/dev/full", W_OK) != 0) return;
  FileSink sink("/dev/full", true);
  CHECK_FALSE(sink.write("x", 1));
  CHECK(sink.error_number() == ENOSPC);
  CHECK_FALSE(sink.write("x", 1));
  CHECK_FALSE(sink.close());
  CHECK(sink.error_number() == ENOSPC);
}

TEST_CASE("a pipe that nobody reads is an error, not a wait") {
  const Folder folder;
  const std::string path = folder / "a.gmt";
  REQUIRE(::mkfifo(path.c_str(), 0666) == 0);
  CHECK(error_of(path, true) == ENXIO);
}

TEST_CASE("a pipe that is full is waited for, but not for ever") {
  const Folder folder;
  const std::string path = folder / "a.gmt";
  REQUIRE(::mkfifo(path.c_str(), 0666) == 0);
  const OwnedDescriptor reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const auto size = static_cast<std::size_t>(::fcntl(reader.get(), F_GETPIPE_SZ));
  const std::vector<char> data(size + 100, 'x');
  FileSink sink(path, true);
  std::size_t received = 0;
  std::thread slow([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::vector<char> room(data.size());
    while (received < data.size()) {
      const ssize_t part = ::read(reader.get(), room.data(), room.size());
      if (part > 0) received += static_cast<std::size_t>(part);
    }
  });
  CHECK(sink.write(data.data(), data.size()));
  slow.join();
  CHECK(received == data.size());
  const auto begin = std::chrono::steady_clock::now();
  CHECK_FALSE(sink.write(data.data(), data.size()));  // nobody reads any more
  CHECK(sink.error_number() == ETIMEDOUT);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

TEST_CASE("the system's names of open files are followed, though they are links") {
  const Folder folder;
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const OwnedDescriptor reader(ends[0]);
  const OwnedDescriptor writer(ends[1]);
  for (const std::string name : {"/dev/fd/", "/proc/self/fd/"}) {
    FileSink sink(name + std::to_string(writer.get()), true);
    CHECK(sink.write("abc", 3));
    char read[8];
    CHECK(::read(reader.get(), read, sizeof read) == 3);
  }
  REQUIRE(::symlink("/dev/null", (folder / "link").c_str()) == 0);
  CHECK(error_of(folder / "link", true) == ELOOP);
}

TEST_CASE("somebody else's file in a folder for all is not overwritten, nor written into") {
  if (::geteuid() != 0) return;  // only root can make such a file
  constexpr uid_t kSomebody = 65534;
  const Folder folder;
  const std::string shared = folder / "shared";
  REQUIRE(::mkdir(shared.c_str(), 0777) == 0);
  REQUIRE(::chmod(shared.c_str(), 01777) == 0);
  const std::string path = shared + "/a.gmt";
  std::ofstream(path) << "theirs";
  REQUIRE(::chown(path.c_str(), kSomebody, kSomebody) == 0);
  CHECK(error_of(path, true) == EACCES);
  CHECK(content(path) == "theirs");
  REQUIRE(::chmod(shared.c_str(), 0755) == 0);  // the folder is ours alone: so is what lies in it
  CHECK(error_of(path, true) == 0);
  CHECK(content(path).empty());
}

}  // namespace gpumemtrace
