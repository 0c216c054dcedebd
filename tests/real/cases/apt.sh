# apt: update and download from a repository of its own making, twice, each time with empty state and caches.
mkdir -p "$stage/www/apt" "$stage/packages"
for number in 1 2 3 4 5; do
  tree=$stage/packages/$number
  mkdir -p "$tree/DEBIAN" "$tree/usr/share/larder-test-$number"
  head -c $((number * 50000)) /dev/urandom > "$tree/usr/share/larder-test-$number/data"
  printf 'Package: larder-test-%s\nVersion: 1.0\nArchitecture: all\nMaintainer: none <none@localhost>\nDescription: a test\n' \
    "$number" > "$tree/DEBIAN/control"
  dpkg-deb --root-owner-group --build "$tree" "$stage/www/apt/larder-test-${number}_1.0_all.deb" > "$stage/dpkg-deb.log"
done
(cd "$stage/www/apt" && apt-ftparchive packages . > Packages && apt-ftparchive release . > "$stage/Release" && mv "$stage/Release" .)
age "$stage"/www/apt/*

for turn in first second; do
  state=$stage/apt.$turn
  mkdir -p "$state/state/lists/partial" "$state/cache/archives/partial" "$state/etc" "$state/download"
  : > "$state/status"
  echo "deb [trusted=yes] http://127.0.0.1:$origin_port/apt ./" > "$state/etc/sources.list"
  options=(-o "Dir::Etc=$state/etc" -o Dir::Etc::sourcelist=sources.list -o Dir::Etc::sourceparts=- -o Dir::Etc::parts=-
    -o "Dir::State=$state/state" -o "Dir::State::status=$state/status" -o "Dir::Cache=$state/cache"
    -o APT::Sandbox::User=root -o "Acquire::http::Proxy=$proxy" -o Acquire::Languages=none)
  bodies_before=$(origin_count '^GET /apt/.* 200 ')
  apt-get "${options[@]}" -qq update > "$stage/apt.$turn.log" 2>&1
  verdict "apt: $turn update" [ $? -eq 0 ]
  (cd "$state/download" && apt-get "${options[@]}" -qq download larder-test-{1,2,3,4,5} >> "$stage/apt.$turn.log" 2>&1)
  verdict "apt: $turn download of five packages" [ $? -eq 0 ]
  right=0
  for package in "$stage"/www/apt/*.deb; do
    cmp -s "$package" "$state/download/$(basename "$package")" && right=$((right + 1))
  done
  verdict "apt: $turn five packages are the origin's" [ "$right" -eq 5 ]
  verdict "apt: five package requests reached the origin" [ "$(origin_count '^GET /apt/.*\.deb ')" -eq 5 ]
done
# apt asks for its lists with max-age=0, so they are validated, not sent again.
verdict "apt: the first time the origin sent lists and packages" [ "$bodies_before" -ge 7 ]
verdict "apt: the second time the origin sent no body" [ "$(origin_count '^GET /apt/.* 200 ')" -eq "$bodies_before" ]
