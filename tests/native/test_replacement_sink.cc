#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>
#include <system_error>
#include <vector>

#include "folder.h"
#include "trace/replacement_sink.h"

namespace gpumemtrace {
namespace {

bool write(Sink& sink, const std::string& text) { return sink.write(text.data(), text.size()); }

}  // namespace

TEST_CASE("whoever opens the name sees the one file or the other, never less") {
  const Folder folder;
  const std::string path = folder / "a.gmt";
  FileSink old(path, false);
  REQUIRE(write(old, "large"));
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  ReplacementSink sink(old.descriptor());
  CHECK(write(sink, "sma"));
  CHECK(content(path) == "large");
  CHECK(folder.names() == std::vector<std::string>{"a.gmt"});  // it has no name yet
  CHECK(write(sink, "ll"));
  REQUIRE(sink.publish());
  CHECK(sink.path() == path);
  CHECK(content(path) == "small");
  CHECK(folder.names() == std::vector<std::string>{"a.gmt"});
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0640);
  CHECK(write(sink, "er"));  // it goes on
  CHECK(content(path) == "smaller");
  CHECK(sink.close());
  CHECK_FALSE(write(sink, "more"));
  CHECK(sink.error_number() == EBADF);
}

TEST_CASE("a file whose name is as long as a name may be is replaced like others") {
  const Folder folder;
  const std::string path = folder / std::string(255, 'x').c_str();
  FileSink old(path, false);
  REQUIRE(write(old, "large"));
  ReplacementSink sink(old.descriptor());
  CHECK(write(sink, "small"));
  REQUIRE(sink.publish());
  CHECK(content(path) == "small");
  CHECK(folder.names().size() == 1);
}

TEST_CASE("what was not published leaves nothing behind") {
  const Folder folder;
  FileSink old(folder / "a.gmt", false);
  REQUIRE(write(old, "large"));
  {
    ReplacementSink sink(old.descriptor());
    CHECK(write(sink, "small"));
  }
  CHECK(content(folder / "a.gmt") == "large");
  CHECK(folder.names() == std::vector<std::string>{"a.gmt"});
}

TEST_CASE("a file that was renamed is replaced under its new name, in its new folder") {
  const Folder folder;
  FileSink old(folder / "a.gmt", false);
  ReplacementSink sink(old.descriptor());
  CHECK(write(sink, "small"));
  REQUIRE(::mkdir((folder / "moved").c_str(), 0755) == 0);
  REQUIRE(::rename((folder / "a.gmt").c_str(), (folder / "moved/b.gmt").c_str()) == 0);
  REQUIRE(sink.publish());
  CHECK(content(folder / "moved/b.gmt") == "small");
  CHECK(folder.names() == std::vector<std::string>{"moved"});
}

TEST_CASE("another file that took the name since is not touched, nor one that was deleted made") {
  const Folder folder;
  const std::string path = folder / "a.gmt";
  FileSink old(path, false);
  ReplacementSink sink(old.descriptor());
  CHECK(write(sink, "small"));
  REQUIRE(::unlink(path.c_str()) == 0);
  FileSink theirs(path, false);
  REQUIRE(write(theirs, "theirs"));
  CHECK_FALSE(sink.publish());
  CHECK(sink.error_number() == ENOENT);
  CHECK(content(path) == "theirs");
  CHECK(folder.names() == std::vector<std::string>{"a.gmt"});
  CHECK_THROWS_AS(ReplacementSink(old.descriptor()), std::system_error);
}

TEST_CASE("what a killed process left of its own is removed, what somebody put there is not") {
  const Folder folder;
  const std::string path = folder / "a.gmt";
  const std::string left = folder / ".a.gmt.ageing";
  FileSink old(path, false);
  FileSink(left, false).close();
  remove_unfinished_replacement(path);
  CHECK(folder.names() == std::vector<std::string>{"a.gmt"});
  REQUIRE(::symlink(path.c_str(), left.c_str()) == 0);
  remove_unfinished_replacement(path);
  CHECK(folder.names() == std::vector<std::string>{".a.gmt.ageing", "a.gmt"});
  remove_unfinished_replacement(folder / "no such folder/a.gmt");
}

TEST_CASE("a full disk is an error that stays, and publishes nothing") {
  const Folder folder;
  const std::string path = folder / "a.gmt";
  FileSink old(path, false);
  REQUIRE(write(old, "large"));
  ReplacementSink sink(old.descriptor());
  // As full as it gets without a file system of one's own.
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto callers_action = ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit none { 0, before.rlim_max };
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);
  CHECK_FALSE(write(sink, "small"));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  ::signal(SIGXFSZ, callers_action);
  CHECK(sink.error_number() == EFBIG);
  CHECK_FALSE(write(sink, "small"));
  CHECK_FALSE(sink.publish());
  CHECK(content(path) == "large");
}

}  // namespace gpumemtrace
