// Writes one archive with Go's archive/tar: go run archive.go FORMAT OUT < LIST
// FORMAT is ustar, pax or gnu. LIST names the members, one a line, in order; they are
// read from the current folder.
package main

import (
	"archive/tar"
	"bufio"
	"log"
	"os"
	"strings"
	"time"
)

func main() {
	format := map[string]tar.Format{"ustar": tar.FormatUSTAR, "pax": tar.FormatPAX, "gnu": tar.FormatGNU}[os.Args[1]]
	out, err := os.Create(os.Args[2])
	check(err)
	writer := tar.NewWriter(out)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		name := lines.Text()
		info, err := os.Lstat(name)
		check(err)
		link := ""
		if info.Mode()&os.ModeSymlink != 0 {
			link, err = os.Readlink(name)
			check(err)
		}
		header, err := tar.FileInfoHeader(info, link)
		check(err)
		header.Name, header.Format, header.ModTime = name, format, time.Unix(1700000000, 0)
		header.AccessTime, header.ChangeTime = time.Time{}, time.Time{}
		header.Uid, header.Gid, header.Uname, header.Gname = 1000, 1000, "", ""
		if info.IsDir() {
			header.Name += "/"
		}
		if strings.HasSuffix(name, ".hard") {
			header.Typeflag, header.Linkname, header.Size = tar.TypeLink, "images/cat.jpg", 0
		}
		check(writer.WriteHeader(header))
		if header.Typeflag == tar.TypeReg {
			content, err := os.ReadFile(name)
			check(err)
			_, err = writer.Write(content)
			check(err)
		}
	}
	check(writer.Close())
	check(out.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
